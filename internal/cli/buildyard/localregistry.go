package buildyard

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/registry/files"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
	"github.com/buildyard/buildyard/internal/transfer"
)

// localRegistry is the registry of the controller's own process: every start calls it, and
// HTTP calls would cost more than the rest of the start.
type localRegistry struct {
	registry     *registry.Registry
	currentRules func() *auth.Rules // that authorize its callers; returns nil without authorization
}

var _ registryAPI = localRegistry{}

// CallerRights returns the rights of the caller of a request to the controller at the registry; nil is all
// rights.
func (l localRegistry) CallerRights(ctx context.Context, template string) (*api.CallerRights, error) {
	caller := rest.CallerOf(ctx)
	if caller.Unlimited() {
		return nil, nil // everything
	}
	return registryrest.Rights(caller.WithRules(l.currentRules()), l.registry, template), nil
}

// ListTemplates returns all templates.
func (l localRegistry) ListTemplates(context.Context) ([]api.Template, error) {
	return l.registry.ListTemplates(), nil
}

// TemplateDetail returns one template with its versions.
func (l localRegistry) TemplateDetail(_ context.Context, id string) (api.TemplateDetail, error) {
	return l.registry.TemplateDetail(id)
}

// VersionConfig returns the configuration of a version.
func (l localRegistry) VersionConfig(_ context.Context, ref transfer.VersionRef) (api.TemplateConfig, error) {
	raw, err := l.registry.VersionConfig(versionRef(ref))
	if err != nil {
		return api.TemplateConfig{}, err
	}
	return transfer.ParseConfig(ref.ID, raw)
}

// DeleteTemplate removes a template with all its versions.
func (l localRegistry) DeleteTemplate(ctx context.Context, id string) error {
	return l.registry.Delete(ctx, id)
}

// Revert removes a version and all newer ones.
func (l localRegistry) Revert(ctx context.Context, ref transfer.VersionRef) error {
	return l.registry.Revert(ctx, versionRef(ref))
}

func versionRef(ref transfer.VersionRef) registry.VersionRef {
	return registry.VersionRef{ID: ref.ID, Tag: ref.Tag, Number: ref.Number, ContentID: ref.ContentID}
}

// DiskInfo returns the free space of the registry's disk.
func (l localRegistry) DiskInfo(ctx context.Context) (api.DiskInfo, error) {
	return l.registry.DiskInfo(ctx)
}

// Status returns the status of the registry.
func (l localRegistry) Status(context.Context) (api.RegistryStatus, error) {
	return l.registry.Status(), nil
}

// PauseGC suspends garbage collection in the registry for a time.
func (l localRegistry) PauseGC(_ context.Context, length time.Duration) error {
	return l.registry.PauseGC(length)
}

// UploadFile stores a file on the registry's file server.
func (l localRegistry) UploadFile(_ context.Context, name string, content []byte) error {
	_, err := l.registry.Files().StoreFile(
		files.Upload{Name: name, Body: bytes.NewReader(content), Size: int64(len(content))})
	return err
}

// DownloadFile returns a file of the registry's file server.
func (l localRegistry) DownloadFile(_ context.Context, name string, most int64) ([]byte, error) {
	f, err := l.registry.Files().OpenFile(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Size > most {
		return nil, farm.Errorf(farm.CodeTooLarge, "The file %s has more than %d bytes", name, most)
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// RemoveFile removes a file of the registry's file server.
func (l localRegistry) RemoveFile(_ context.Context, name string) error {
	return l.registry.Files().Remove(name)
}
