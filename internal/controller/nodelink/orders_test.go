package nodelink

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestVMName: a name fits, is valid text, and has the prefix.
func TestVMName(t *testing.T) {
	created := time.Unix(0, 1234567890123456789)
	for _, tc := range []struct{ template, name, want string }{
		{"base", "", "mgmtManaged-base-1234567890123456789"},
		{
			"base", "ci-$template_name/$template_id/$instance_id/$node_id/$node_name/$ts",
			"mgmtManaged-ci-base/T/I/N/one/1234567890123456789",
		},
		{strings.Repeat("é", 200), "", ""},
		{"base", strings.Repeat("$template_id", 30) + strings.Repeat("é", 300), ""},
	} {
		inst := &farm.Instance{
			ID: "I", NodeID: "N", NodeName: "one", Created: created,
			Template: farm.TemplateRef{ID: "T", Name: tc.template}, Options: farm.StartOptions{NameTemplate: tc.name},
		}
		got := VMName("mgmtManaged-", inst)
		if tc.want != "" && got != tc.want {
			t.Errorf("name = %q, want %q", got, tc.want)
		}
		if len(got) > maxVMName || !utf8.ValidString(got) || !strings.HasPrefix(got, "mgmtManaged-") {
			t.Errorf("name %q has %d bytes", got, len(got))
		}
		if tc.name == "" && !strings.HasSuffix(got, "-1234567890123456789") {
			t.Errorf("default name %q lost its time", got)
		}
	}
}
