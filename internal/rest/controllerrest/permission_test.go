package controllerrest

import (
	"slices"
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// TestRoutesNamePermissions: a permission that is in no table cannot be granted.
func TestRoutesNamePermissions(t *testing.T) {
	for _, r := range Routes() {
		listed := slices.ContainsFunc(farm.AllPermissions(farm.ServiceController),
			func(p farm.PermissionInfo) bool { return string(p.Name) == r.Permission })
		if !listed &&
			!slices.Contains([]string{
				rest.NoCredential, rest.AnyCredential, rest.NodeOnly, rest.NodeOrCaller,
				string(farm.PermRoot),
			},
				r.Permission) {
			t.Errorf("%s needs %q, which there is not", r.Pattern, r.Permission)
		}
	}
}
