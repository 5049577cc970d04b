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

{{- define "knft.config" -}}
{{- $fixed := dict "apiVersion" "kubeproxy.config.k8s.io/v1alpha1" "kind" "KubeProxyConfiguration" }}
{{- if ne (int .Values.healthz.port) 10256 }}
{{- $_ := set $fixed "healthzBindAddress" (printf "0.0.0.0:%v" .Values.healthz.port) }}
{{- end }}
{{- if .Values.metrics.enabled }}
{{- $_ := set $fixed "metricsBindAddress" (printf "%s:%v" .Values.metrics.bindAddress .Values.metrics.port) }}
{{- end }}
{{- merge $fixed .Values.config | toYaml }}
{{- end }}

{{- define "knft.configMap" -}}
{{- if .Values.kubeProxyConfig.enabled -}}
{{ .Values.kubeProxyConfig.configMap }}
{{- else -}}
knft-{{ include "knft.config" . | sha256sum | trunc 10 }}
{{- end -}}
{{- end }}
