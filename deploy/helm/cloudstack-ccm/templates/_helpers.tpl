{{- /* Names don't depend on the release: a cluster has one cloud controller. */ -}}
{{- define "ccm.name" -}}
{{- ternary "keepalived-cloud-provider" "cloud-controller-manager" (eq .Values.cloudProvider "keepalived") -}}
{{- end -}}

{{- define "ccm.labels" -}}
{{- ternary "app" "k8s-app" (eq .Values.cloudProvider "keepalived") }}: {{ include "ccm.name" . -}}
{{- end -}}

{{- /* Not empty where the pod has a broker. */ -}}
{{- define "ccm.hasBroker" -}}
{{- if not (or (eq .Values.cloudProvider "keepalived") .Values.remoteBroker.addresses) }}yes{{ end -}}
{{- end -}}

{{- /* What would be without effect is refused. */ -}}
{{- define "ccm.check" -}}
{{- if and (eq .Values.cloudProvider "keepalived") .Values.remoteBroker.addresses -}}
{{- fail "remoteBroker.addresses: with cloudProvider keepalived there is no broker" -}}
{{- end -}}
{{- $pool := or .Values.keepalived.enabled (eq .Values.cloudProvider "keepalived") -}}
{{- if and .Values.keepalived.serviceCIDR (not $pool) -}}
{{- fail "keepalived.serviceCIDR: set keepalived.enabled too, or cloudProvider keepalived" -}}
{{- end -}}
{{- if and .Values.metrics.podMonitor.enabled (not .Values.metrics.enabled) -}}
{{- fail "metrics.podMonitor.enabled: set metrics.enabled too, or nothing is shown to Prometheus" -}}
{{- end -}}
{{- end -}}

{{- /* The same in both containers. Take the values of the agent or the broker as half, and the name of its port. */ -}}
{{- define "ccm.args" -}}
{{- if .root.Values.metrics.enabled }}
- --admin-client-ca-file=/metrics-client-ca/ca.crt
{{- end }}
{{- if not (kindIs "invalid" .root.Values.logVerbosityLevel) }}
- --v={{ int .root.Values.logVerbosityLevel }}
{{- end }}
{{- with .half.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "ccm.image" -}}
image: {{ printf "%s:%s" .repository .tag | quote }}
{{- with .pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end -}}

{{- define "ccm.guards" -}}
livenessProbe:
  httpGet: {path: /livez, port: {{ .port }}, scheme: HTTPS}
  initialDelaySeconds: 15
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: {{ .port }}, scheme: HTTPS}
  periodSeconds: 10
  timeoutSeconds: 5
resources:
  {{- toYaml .half.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- /* Where the pool and the ConfigMap are said to the agent. */ -}}
{{- define "ccm.poolEnv" -}}
{{- $alone := eq .Values.cloudProvider "keepalived" -}}
{{- with .Values.keepalived }}
{{- if or $alone .enabled }}
- {name: KEEPALIVED_NAMESPACE, value: kube-system}
- {name: KEEPALIVED_CONFIG_MAP, value: {{ .configMap | quote }}}
- {name: KEEPALIVED_SERVICE_CIDR, value: {{ .serviceCIDR | quote }}}
{{- if or $alone .serviceReserved }}
- {name: KEEPALIVED_SERVICE_RESERVED, value: {{ .serviceReserved | quote }}}
{{- end }}
{{- if or $alone .defaultForwardMethod }}
- {name: KEEPALIVED_DEFAULT_FORWARD_METHOD, value: {{ .defaultForwardMethod | quote }}}
{{- end }}
{{- if not $alone }}
- {name: KEEPALIVED_CREATE_CONFIG_MAP, value: "false"}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
