// The upstream conformance suite of the Gateway API, unchanged: flags say which class and what is claimed.
package conformance

import (
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
)

func TestConformance(t *testing.T) {
	conformance.RunConformance(t)
}
