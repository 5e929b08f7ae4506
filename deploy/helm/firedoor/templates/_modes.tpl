{{/* "true" or "": whether the pods live in the host's network namespace. */}}
{{- define "firedoor.hostNetwork" -}}
{{- $chosen := .Values.hostNetwork -}}
{{- if kindIs "bool" $chosen -}}
{{- if $chosen -}}true{{- end -}}
{{- if and (not $chosen) .Values.sources.ebpf.enabled -}}
{{- fail "hostNetwork: false does not go with sources.ebpf: outside the host's network namespace the agent takes the traffic of the node for that of a pod" -}}
{{- end -}}
{{- else -}}
{{- if .Values.sources.ebpf.enabled -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* The directory of Hubble's socket on the node, or "". */}}
{{- define "firedoor.hubbleDirectory" -}}
{{- if and .Values.sources.hubble.enabled (hasPrefix "unix://" .Values.sources.hubble.address) -}}
{{- trimPrefix "unix://" .Values.sources.hubble.address | dir -}}
{{- end -}}
{{- end -}}

{{/* "true" or "": the kernel and the sockets of a node belong to user 0, a relay does not. */}}
{{- define "firedoor.asRoot" -}}
{{- if or .Values.sources.ebpf.enabled (include "firedoor.hubbleDirectory" .) -}}true{{- end -}}
{{- end -}}

{{- define "firedoor.listen" -}}
{{- if .Values.listen.address -}}
{{- printf "%s:%v" .Values.listen.address .Values.listen.port -}}
{{- else if include "firedoor.hostNetwork" . -}}
{{- printf "$(HOST_IP):%v" .Values.listen.port -}}
{{- else -}}
{{- printf "0.0.0.0:%v" .Values.listen.port -}}
{{- end -}}
{{- end -}}

{{/* What cannot be meant. */}}
{{- define "firedoor.checked" -}}
{{- if not (or .Values.sources.ebpf.enabled .Values.sources.hubble.enabled) -}}
{{- fail "sources: enable ebpf, hubble, or both" -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled -}}
{{- fail "enable serviceMonitor or podMonitor, not both: scraped twice, sums are doubled" -}}
{{- end -}}
{{- end -}}
