{{- define "oolong.labels" -}}
app.kubernetes.io/name: oolong
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "oolong.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "oolong.secret" -}}
{{ .Values.existingSecret | default .Release.Name }}
{{- end }}

{{- define "oolong.pod" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "oolong.container" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}

{{- define "oolong.environment" -}}
- {name: SECRET_KEY_FILE, value: /run/secrets/oolong/secret_key}
- {name: OOLONG_SECRETS_KEYS_FILE, value: /run/secrets/oolong/secrets_keys}
- {name: DATABASE_URL_FILE, value: /run/secrets/oolong/database_url}
- {name: REDIS_URL_FILE, value: /run/secrets/oolong/redis_url}
- {name: OOLONG_METRICS_TOKEN_FILE, value: /run/secrets/oolong/metrics_token}
{{- end }}

{{- define "oolong.mounts" -}}
- {name: secrets, mountPath: /run/secrets/oolong, readOnly: true}
- {name: store, mountPath: /var/lib/oolong/store}
- {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "oolong.volumes" -}}
- name: secrets
  secret: {secretName: {{ include "oolong.secret" . }}}
- name: store
  persistentVolumeClaim: {claimName: {{ .Release.Name }}-store}
- name: tmp
  emptyDir: {}
{{- end }}
