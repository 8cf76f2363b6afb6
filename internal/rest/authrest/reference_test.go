package authrest_test

import (
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest/authrest"
	"github.com/buildyard/buildyard/internal/tools/referencetest"
)

// TestReferenceOfRoutes: the page of the permissions has the routes of authentication.
func TestReferenceOfRoutes(t *testing.T) {
	for service, heading := range map[farm.Service]string{
		farm.ServiceController: "Routes of authentication at the controller",
		farm.ServiceRegistry:   "Routes of authentication at the registry",
	} {
		var rows []referencetest.Route
		for _, r := range authrest.Routes(newSite(t, service).options) {
			rows = append(rows, referencetest.Route{Pattern: r.Pattern, Permission: r.Permission})
		}
		referencetest.Section(t, "permissions.md", heading, referencetest.Routes(rows))
	}
}
