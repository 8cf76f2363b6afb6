package controllerrest

import (
	"slices"
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// TestRoutesNamePermissions: a permission that is in no table can be granted to nobody.
func TestRoutesNamePermissions(t *testing.T) {
	for _, r := range Routes() {
		listed := slices.ContainsFunc(farm.AllPermissions(farm.ServiceController), func(p farm.PermissionInfo) bool { return string(p.Name) == r.Permission })
		if !listed && r.Permission != rest.Open && r.Permission != string(farm.PermRoot) {
			t.Errorf("%s needs %q, which there is not", r.Pattern, r.Permission)
		}
	}
}
