{{/*
One scraped endpoint. The labels of training jobs are kept, and the target is called after its node and not after its pod,
so that a restarted agent goes on in the same series.
*/}}
{{- define "firedoor.endpoint" -}}
port: http
path: /metrics
honorLabels: true
interval: {{ .interval }}
scrapeTimeout: {{ .scrapeTimeout }}
relabelings:
  - action: replace
    sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: instance
  - action: labeldrop
    regex: pod|container|endpoint|service
{{- end -}}
