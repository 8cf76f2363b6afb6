package registryrest

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry/files"
	"github.com/buildyard/buildyard/internal/rest"
)

// The permissions of the file server.
const (
	permUpload       = "upload_file"
	permDownloadFile = "download_file"
)

func (s service) fileRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /registry/files", Permission: permDownloadFile, Handle: s.listFiles},
		{Pattern: "GET /registry/files/{path...}", Permission: permDownloadFile, HandleRaw: s.getFile},
		{
			Pattern: "PUT /registry/files/{path...}", Permission: permUpload, AllowsRegistryToken: true,
			HandleRaw: s.putFile,
		},
		{Pattern: "DELETE /registry/files/{path...}", Permission: permUpload, Handle: s.deleteFile},
	}
}

func (s service) listFiles(r *rest.Request) (any, error) {
	dir := r.Params.String("dir")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return s.registry.Files().List(dir)
}

// browserExtensions are the file extensions that a browser may show; it saves all others.
var browserExtensions = []string{".log", ".txt"}

func (s service) getFile(w http.ResponseWriter, r *http.Request) error {
	f, err := s.registry.Files().OpenFile(r.PathValue("path"))
	if err != nil {
		return err
	}
	defer f.Close()
	setPlainText(w.Header())
	w.Header().Set("ETag", fmt.Sprintf(`"%x-%x"`, f.Modified.UnixNano(), f.Size)) // a file is replaced, never changed
	if !slices.Contains(browserExtensions, path.Ext(f.Name())) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", "attachment")
	}
	http.ServeContent(newDeadlineWriter(w), r, "", time.Time{}, f)
	return nil
}

// putFile stores the body. The body is raw bytes, so the handler writes its own response.
func (s service) putFile(w http.ResponseWriter, r *http.Request) error {
	if err := checkNodeUpload(r); err != nil {
		return err
	}
	if r.Header.Get("Content-Range") != "" { // a range must not be stored as the whole file
		return farm.Invalid("Content-Range", "is not supported: send the whole file again")
	}
	body := rest.NewMinRateBody(w, r, idleTimeout, minBytesPerSecond)
	defer func() { _ = body.Close() }()
	receipt, err := s.registry.Files().StoreFile(files.Upload{
		Name: r.PathValue("path"), Body: body, Size: r.ContentLength, Sum: r.URL.Query().Get("sha256"),
		Caller: rest.CallerName(r),
	})
	if err != nil {
		return err
	}
	return rest.WriteResponse(w, r, receipt)
}

func (s service) deleteFile(r *rest.Request) (any, error) {
	return rest.Null, s.registry.Files().Remove(r.PathValue("path"))
}
