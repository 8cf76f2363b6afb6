package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/buildyard/buildyard/api"
)

// Files gives a directory of the registry's file server, through the controller; "" is
// the top.
func (c *Controller) Files(ctx context.Context, dir string) ([]api.StoredFile, error) {
	return filesOf(ctx, c.service, "/api/v1/registry/files", dir)
}

// File gives the bytes of a file of the registry's file server, through the controller.
func (c *Controller) File(ctx context.Context, name string) (*Stream, error) {
	return c.stream(ctx, get("/api/v1/registry/files/"+name, nil))
}

const pathFiles = "/registry/files"

// Files gives a directory of the file server; "" is the top.
func (r *Registry) Files(ctx context.Context, dir string) ([]api.StoredFile, error) {
	return filesOf(ctx, r.service, pathFiles, dir)
}

func filesOf(ctx context.Context, s *service, path, dir string) ([]api.StoredFile, error) {
	q := url.Values{}
	set(q, "dir", dir)
	return fetch[[]api.StoredFile](ctx, s, get(path, q))
}

// File gives the bytes of a file.
func (r *Registry) File(ctx context.Context, name string) (*Stream, error) {
	return r.stream(ctx, get(pathFiles+"/"+name, nil))
}

// Upload puts a file on the file server. The sum is the sha256 of its bytes in hex, which
// the registry holds them against; "" leaves that out. The call is made once and may take
// as long as its context allows, at most a day.
func (r *Registry) Upload(ctx context.Context, name string, from io.Reader, sum string) (api.FileReceipt, error) {
	q := url.Values{}
	set(q, "sha256", sum)
	s := *r.service
	s.timeout = maxUpload
	return fetch[api.FileReceipt](ctx, &s, call{method: http.MethodPut, path: pathFiles + "/" + name, query: q, stream: from})
}

// maxUpload bounds an upload that its caller gives no end.
const maxUpload = 24 * time.Hour

// DeleteFile removes a file or an empty directory.
func (r *Registry) DeleteFile(ctx context.Context, name string) error {
	return r.do(ctx, call{method: http.MethodDelete, path: pathFiles + "/" + name, again: true}, nil)
}
