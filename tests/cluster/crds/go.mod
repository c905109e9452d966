// Where the kinds come from that are not ours: pinned releases, fetched through the module cache, never copied into the tree.
module crds

go 1.26.0

require (
	sigs.k8s.io/gateway-api v1.6.3
	sigs.k8s.io/gateway-api-inference-extension v1.5.0
)
