// Two texts beside each other, line by line.

const MOST = 1500;

/** The lines of both, each with "+" (the second alone has it), "-" (the first alone has it) or " ". */
export function compare(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let end = 0;
  while (end < before.length - start && end < after.length - start && before.at(-1 - end) === after.at(-1 - end)) end++;
  const one = before.slice(start, before.length - end);
  const two = after.slice(start, after.length - end);
  const same = (lines) => lines.map((line) => [" ", line]);
  return [...same(before.slice(0, start)), ...middle(one, two), ...same(before.slice(before.length - end))];
}

function middle(one, two) {
  const all = [...one.map((line) => ["-", line]), ...two.map((line) => ["+", line])];
  // The table below has a place for each pair of lines.
  if (one.length > MOST || two.length > MOST) return all;
  const width = two.length + 1;
  const common = new Uint16Array((one.length + 1) * width);
  for (let i = one.length - 1; i >= 0; i--) {
    for (let j = two.length - 1; j >= 0; j--) {
      common[i * width + j] = one[i] === two[j] ? common[(i + 1) * width + j + 1] + 1
        : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const found = [];
  let [i, j] = [0, 0];
  while (i < one.length || j < two.length) {
    if (i < one.length && j < two.length && one[i] === two[j]) {
      found.push([" ", one[i++]]);
      j++;
    } else if (j === two.length || (i < one.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) {
      found.push(["-", one[i++]]);
    } else {
      found.push(["+", two[j++]]);
    }
  }
  return found;
}
