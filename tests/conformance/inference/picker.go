//go:build tools

// The picker that the suite's manifests deploy is built from the same module.
package conformance

import _ "sigs.k8s.io/gateway-api-inference-extension/cmd/lwepp"
