{{- define "knft.labels" -}}
app.kubernetes.io/name: knft
app.kubernetes.io/part-of: knft
{{- end }}

{{- define "knft.managed" -}}
{{ include "knft.labels" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "knft.serviceAccount" -}}
{{ .Values.serviceAccount.name | default "knft" }}
{{- end }}

{{- define "knft.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- define "knft.configFolder" -}}
{{ if .Values.kubeProxyConfig.enabled }}/var/lib/kube-proxy{{ else }}/etc/knft{{ end }}
{{- end }}

{{- define "knft.configFile" -}}
{{ include "knft.configFolder" . }}/{{ if .Values.kubeProxyConfig.enabled }}config.conf{{ else }}config.yaml{{ end }}
{{- end }}
