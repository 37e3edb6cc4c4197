{{- define "palaver.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end -}}
{{- end }}

{{- define "palaver.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component | default .role }}
{{- end }}

{{- define "palaver.labels" -}}
{{ include "palaver.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "palaver.fromSecret" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef: {name: {{ .root.Values.existingSecret }}, key: {{ .key }}}
{{- end }}

{{/* The secrets of a role that Palaver itself reads, so that they may be files: the variable, and the Secret's key. */}}
{{- define "palaver.secrets" -}}
PALAVER_REDIS_URL: {{ index .root.Values.redisUrlKeys (.role | replace "tools" "worker") | quote }}
{{- if .root.Values.brokerFromSecret }}
PALAVER_BROKER_URL: broker-url
{{- end }}
{{- if and .root.Values.secretKey (ne .role "flower") }}
PALAVER_SECRET_KEY: {{ .root.Values.secretKey | quote }}
{{- end }}
{{- if and .root.Values.archiveKey (ne .role "flower") }}
PALAVER_ARCHIVE_URL: {{ .root.Values.archiveKey | quote }}
{{- end }}
{{- if eq .role "api" }}
PALAVER_API_KEYS: api-keys
{{- if .root.Values.keda.enabled }}
PALAVER_QUEUES_KEYS: scaler-key
{{- end }}
{{- if .root.Values.monitoring.scrape }}
PALAVER_METRICS_KEYS: metrics-key
{{- end }}
{{- end }}
{{- if eq .role "worker" }}
{{- range $variable, $key := .root.Values.providerKeys }}
{{ $variable }}: {{ $key | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "palaver.secretFolder" -}}
/run/secrets/palaver
{{- end }}

{{/* What every role knows: where the store is, and who it is there; and the settings. */}}
{{- define "palaver.environment" -}}
{{- range $name, $key := include "palaver.secrets" . | fromYaml }}
{{- if $.root.Values.secretsAsFiles }}
- name: {{ $name }}_FILE
  value: {{ include "palaver.secretFolder" $ }}/{{ $key }}
{{- else }}
{{ include "palaver.fromSecret" (dict "root" $.root "name" $name "key" $key) }}
{{- end }}
{{- end }}
{{- range $name, $value := .root.Values.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- with .root.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Where the traces go that the API begins and model workers send. */}}
{{- define "palaver.tracing" -}}
{{- with .Values.tracing.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- range $name, $value := .Values.tracing.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* A pod template's metadata: a change of the providers starts the pods again. */}}
{{- define "palaver.podMetadata" -}}
labels:
  {{- include "palaver.labels" . | nindent 2 }}
annotations:
  checksum/providers: {{ .root.Values.providers | sha256sum }}
  {{- with .root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "palaver.podSettings" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "palaver.selector" . | nindent 8 }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $own := .own | default dict }}
{{- with $own.nodeSelector | default .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations | default .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
volumes:
  - name: providers
    configMap: {name: {{ include "palaver.name" .root }}-providers}
  - name: tmp
    emptyDir: {}
  - name: run
    emptyDir: {medium: Memory, sizeLimit: 1Mi}
  {{- if .root.Values.secretsAsFiles }}
  - name: secrets
    secret:
      secretName: {{ .root.Values.existingSecret }}
      defaultMode: 0440
      items:
        {{- range $key := include "palaver.secrets" . | fromYaml | values | uniq | sortAlpha }}
        - {key: {{ $key | quote }}, path: {{ $key | quote }}}
        {{- end }}
  {{- end }}
  {{- with .root.Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "palaver.containerSettings" -}}
image: "{{ required "set image.repository to where your image is" .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: providers, mountPath: /etc/palaver, readOnly: true}
  - {name: tmp, mountPath: /tmp}
  - {name: run, mountPath: /run/palaver}
  {{- if .Values.secretsAsFiles }}
  - {name: secrets, mountPath: {{ include "palaver.secretFolder" . }}, readOnly: true}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
