package farm

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/tools/referencetest"
)

// TestReferenceOfEvents: the page of the events has the table of this package.
func TestReferenceOfEvents(t *testing.T) {
	quote := func(keys []string) string {
		if len(keys) == 0 {
			return ""
		}
		return "`" + strings.Join(keys, "`, `") + "`"
	}
	var b strings.Builder
	b.WriteString("| name | type | sub_type | written when | keys | keys of some |\n|---|---|---|---|---|---|\n")
	for _, e := range Events() {
		kind := cmp.Or(EventKinds[e.Name], SystemAction)
		fmt.Fprintf(&b, "| `%s` | `%s` | `%s` | %s | %s | %s |\n",
			e.Name, kind, e.Group, strings.TrimSuffix(e.Description, "."), quote(e.RequiredKeys), quote(e.OptionalKeys))
	}
	referencetest.Section(t, "events.md", "Events", b.String())
}

// TestReferenceOfPermissions: the page of the permissions has the tables of this package.
func TestReferenceOfPermissions(t *testing.T) {
	for service, heading := range map[Service]string{
		ServiceController: "Permissions at the controller", ServiceRegistry: "Permissions at the registry",
	} {
		referencetest.Section(t, "permissions.md", heading, permissionRows(AllPermissions(service)))
	}
	for of, heading := range map[ResourceType]string{
		ResourceNode: "Rights on a node, at the controller", ResourceTemplate: "Rights on a template, at the registry",
	} {
		referencetest.Section(t, "permissions.md", heading, permissionRows(ResourcePermissions(of)))
	}
}

func permissionRows(list []PermissionInfo) string {
	var b strings.Builder
	b.WriteString("| permission | area | name in the portal | meaning |\n|---|---|---|---|\n")
	for _, p := range list {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", p.Name, p.Category, p.Label, referencetest.Cell(p.Description))
	}
	return b.String()
}
