{{/* firedoor.toml, as a YAML map: what the chart knows, overruled by .Values.config. */}}
{{- define "firedoor.settings" -}}
{{- $sources := list -}}
{{- if .Values.sources.ebpf.enabled }}{{ $sources = append $sources "ebpf" }}{{ end -}}
{{- if .Values.sources.hubble.enabled }}{{ $sources = append $sources "hubble" }}{{ end -}}
{{- $settings := dict "agent" (dict "sources" $sources) -}}
{{- if .Values.sources.ebpf.enabled -}}
{{- $_ := set $settings "kernel" (dict "cgroups" "/host/cgroup") -}}
{{- end -}}
{{- with .Values.sources.hubble -}}
{{- if .enabled -}}
{{- $hubble := dict "address" .address -}}
{{- if .cluster }}{{ $_ := set $hubble "cluster" .cluster }}{{ end -}}
{{- if .serverName }}{{ $_ := set $hubble "serverName" .serverName }}{{ end -}}
{{- if .tls.secretName -}}
{{- if .tls.caKey }}{{ $_ := set $hubble "tlsCa" (printf "/etc/firedoor-tls/%s" .tls.caKey) }}{{ end -}}
{{- if .tls.certKey }}{{ $_ := set $hubble "tlsCert" (printf "/etc/firedoor-tls/%s" .tls.certKey) }}{{ end -}}
{{- if .tls.keyKey }}{{ $_ := set $hubble "tlsKey" (printf "/etc/firedoor-tls/%s" .tls.keyKey) }}{{ end -}}
{{- end -}}
{{- $_ := set $settings "hubble" $hubble -}}
{{- end -}}
{{- end -}}
{{- mergeOverwrite $settings (deepCopy .Values.config) | toYaml -}}
{{- end -}}

{{/* A section of TOML. JSON's strings, numbers and lists are TOML's, too; Helm's own toToml writes 3 as 3.0. */}}
{{- define "firedoor.section" -}}
{{- range $key, $value := . }}
{{ $key }} = {{ toRawJson $value }}
{{- end }}
{{- end -}}

{{- define "firedoor.toml" -}}
{{- range $section, $keys := include "firedoor.settings" . | fromYaml -}}
{{- if eq $section "prices" -}}
{{- range $provider, $prices := $keys }}
[prices.{{ $provider }}]
{{- include "firedoor.section" $prices }}
{{ end -}}
{{- else }}
[{{ $section }}]
{{- include "firedoor.section" $keys }}
{{ end -}}
{{- end -}}
{{- end -}}
