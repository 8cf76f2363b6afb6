package controller

import (
	"context"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// pushedAnew is a shelf on which the content of the versions has changed by the time their
// configuration is read.
type pushedAnew struct{ *shelf }

func (pushedAnew) VersionConfig(_ context.Context, ref transfer.VersionRef) (api.TemplateConfig, error) {
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
