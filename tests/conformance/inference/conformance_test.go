// The upstream conformance suite of the inference extension, unchanged: flags say which class is tried.
package conformance

import (
	"testing"

	"sigs.k8s.io/gateway-api-inference-extension/conformance"
)

func TestConformance(t *testing.T) {
	conformance.RunConformance(t)
}
