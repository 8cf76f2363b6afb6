package controller

import (
	"context"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

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

// pushedAnew is a shelf on which the content of the versions has changed by the time their
// configuration is read.
type pushedAnew struct{ *shelf }

func (pushedAnew) Info(_ context.Context, ref transfer.Ref) (api.TemplateConfig, error) {
	if ref.ContentID != "" && ref.ContentID != "pushed anew" {
		return api.TemplateConfig{}, farm.Errorf(farm.CodeNoVersion, "no version %s", ref.ContentID)
	}
	return api.TemplateConfig{RAM: "64G"}, nil
}

// TestConfigOfOtherBytes: a revert and a push between two reads of the registry never assign the
// configuration of another version to a version.
func TestConfigOfOtherBytes(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		c.stop()
		c.start(Options{Registry: pushedAnew{c.shelf}})
		_, err := c.Start(t.Context(), StartRequest{TemplateID: templateID, Tag: "v1", Count: 1})
		if err == nil || err.Error() != "No such tag v1" {
			t.Errorf("got %v", err)
		}
	})
}
