package client

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"time"

	"github.com/buildyard/buildyard/api"
)

// Files returns a directory of the registry's file server, through the controller; "" is the root.
func (c *Controller) Files(ctx context.Context, dir string) ([]api.StoredFile, error) {
	return filesOf(ctx, c.service, "/api/v1/registry/files", dir)
}

// File returns the bytes of a file of the registry's file server, through the controller.
func (c *Controller) File(ctx context.Context, name string) (*Stream, error) {
	return fileOf(ctx, c.service, "/api/v1/registry/files", name)
}

const pathFiles = "/registry/files"

// fileCall makes a call on a file. An invalid name would be a call on another object.
func fileCall(method, path, name string) (call, error) {
	c := call{method: method, path: path + "/" + name, again: true}
	if !fs.ValidPath(name) || name == "." {
		return c,
			&Error{
				Code:    ErrInvalid,
				Message: fmt.Sprintf("name: invalid file name %q: want a relative path such as tools/setup.sh", name),
				Method:  method, Path: path,
			}
	}
	return c, nil
}

func fileOf(ctx context.Context, s *service, path, name string) (*Stream, error) {
	ask, err := fileCall(http.MethodGet, path, name)
	if err != nil {
		return nil, err
	}
	return s.stream(ctx, ask)
}

// Files returns a directory of the file server; "" is the root.
func (r *Registry) Files(ctx context.Context, dir string) ([]api.StoredFile, error) {
	return filesOf(ctx, r.service, pathFiles, dir)
}

func filesOf(ctx context.Context, s *service, path, dir string) ([]api.StoredFile, error) {
	q := url.Values{}
	set(q, "dir", dir)
	return fetch[[]api.StoredFile](ctx, s, get(path, q))
}

// File returns the bytes of a file.
func (r *Registry) File(ctx context.Context, name string) (*Stream, error) {
	return fileOf(ctx, r.service, pathFiles, name)
}

// Upload puts a file on the file server. sum is the sha256 of its bytes in hex, which the registry verifies; ""
// omits that. The call is made once and may take as long as its context allows, at most a day.
func (r *Registry) Upload(ctx context.Context, name string, from io.Reader, sum string) (api.UploadResult, error) {
	put, err := fileCall(http.MethodPut, pathFiles, name)
	if err != nil {
		return api.UploadResult{}, err
	}
	put.query, put.stream = url.Values{}, from
	set(put.query, "sha256", sum)
	s := *r.service
	s.timeout = maxUpload
	return fetch[api.UploadResult](ctx, &s, put)
}

// maxUpload bounds an upload whose context has no deadline.
const maxUpload = 24 * time.Hour

// DeleteFile removes a file or an empty directory.
func (r *Registry) DeleteFile(ctx context.Context, name string) error {
	remove, err := fileCall(http.MethodDelete, pathFiles, name)
	if err != nil {
		return err
	}
	return r.do(ctx, remove, nil)
}
