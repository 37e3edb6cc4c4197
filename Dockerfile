# One image for every role: `docker run palaver api | worker | tools | flower`, or any other command of `palaver`.
# It runs as user 10001, writes to /tmp and /run/palaver only, and has no secret in it: docs/how-to/deploy-compose.md.
# `palaver serve` is all of it in one container, and keeps its data in /var/lib/palaver, which wants a volume:
# docs/how-to/deploy-one-machine.md.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim-bookworm AS build
WORKDIR /src
# First what changes seldom: with the same lock this layer is kept. Nothing comes in that is not locked with its hash.
COPY constraints.txt ./
RUN python -m venv --without-pip /opt/palaver \
 && pip --python /opt/palaver install --no-cache-dir --disable-pip-version-check \
    --require-hashes --only-binary :all: --requirement constraints.txt
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY palaver ./palaver
COPY workers ./workers
COPY api ./api
COPY features ./features
COPY deploy/twin.py deploy/wheel.py ./deploy/
RUN pip --python /opt/palaver install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation .

FROM python:${PYTHON}-slim-bookworm
RUN groupadd --gid 10001 palaver \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin palaver \
 && install --directory --owner 10001 --group 10001 /run/palaver \
 && install --directory --owner 10001 --group 10001 --mode 700 /var/lib/palaver
COPY --from=build /opt/palaver /opt/palaver
# PALAVER_HOST: a container is reached from outside it; without keys the API refuses to listen there.
ENV PATH=/opt/palaver/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PALAVER_HOST=0.0.0.0
# For `palaver serve` alone.
ENV PALAVER_DATA_DIR=/var/lib/palaver
WORKDIR /opt/palaver
USER 10001:10001
STOPSIGNAL SIGTERM
ENTRYPOINT ["palaver"]
CMD ["api"]
