package controllerrest

import (
	"mime"
	"net/http"
	"os"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// PackageFiles are the files of the agent packages.
type PackageFiles interface {
	// OpenPackage returns a file by the name that a client requests, and its digest if known. The error with
	// farm.CodeNotFound names the file that an operator has to provide.
	OpenPackage(name string) (f *os.File, digest string, err error)
}

// packageRoutes returns the routes by which agents load updates.
func (s *server) packageRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "PUT /api/v1/node/update", Permission: "change_node_config", Handle: s.updateNodes},
		{Pattern: "GET " + api.PathRollout, Permission: "list_nodes", Handle: s.rollout},
		{Pattern: "POST " + api.PathRollout, Permission: "change_node_config", Handle: s.startRollout},
		{Pattern: "PUT " + api.PathRollout, Permission: "change_node_config", Handle: s.changeRollout},
		{Pattern: "GET " + api.PathPackageManifest, Permission: rest.NodeOrCaller, Handle: s.listPackages},
		{Pattern: "GET " + api.PathPackages + "/{name}", Permission: rest.NodeOrCaller, HandleRaw: s.getPackage},
	}
}

func (s *server) updateNodes(r *rest.Request) (any, error) {
	ids := nodeIDsParam(r.Params)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return nil, s.controller.Updates.Request(r.Context(), ids, nodeRightChecker(r, "", rightUpdate))
}

// maxJoinToken is larger than any join token or node credential, in bytes.
const maxJoinToken = 128

// authorizeDownload authorizes a package download. A node sends its ID and its credential as user and password. Other
// callers send the join token, as a password or as a bearer token. Callers that the guard has authenticated may
// always download.
func (s *server) authorizeDownload(r *http.Request) error {
	if rest.CallerOf(r.Context()).IsAuthenticated() {
		return nil
	}
	user, secret, ok := r.BasicAuth()
	if !ok {
		secret = nodeCredential(r)
	}
	if secret == "" || len(secret) > maxJoinToken { // it cannot be a join token: nothing is guessed
		return s.controller.Nodes.AuthorizeDownload(user, secret)
	}
	return rest.LimitedCompare(r, s.guessLimiter,
		func() error { return s.controller.Nodes.AuthorizeDownload(user, secret) })
}

func (s *server) listPackages(r *rest.Request) (any, error) {
	if err := s.authorizeDownload(r.Request); err != nil {
		return nil, err
	}
	return rest.NonNil(s.controller.Updates.Packages()), nil
}

// getPackage returns a file, or the requested range of it.
func (s *server) getPackage(w http.ResponseWriter, r *http.Request) error {
	if err := s.authorizeDownload(r); err != nil {
		return err
	}
	if s.packageFiles == nil {
		rest.WriteNotFound(w, "This controller has no agent packages")
		return nil
	}
	name := r.PathValue("name")
	f, digest, err := s.packageFiles.OpenPackage(name)
	if farm.CodeOf(err) == farm.CodeNotFound {
		rest.WriteNotFound(w, err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	h.Set("Cache-Control", "no-cache")
	modified := time.Time{}
	if digest != "" {
		h.Set("ETag", `"`+digest+`"`)
	} else if st, err := f.Stat(); err == nil {
		modified = st.ModTime()
	}
	out := &deadlineWriter{w: w, controller: http.NewResponseController(w)}
	http.ServeContent(downloadWriter{w, out}, r, "", modified, f)
	_ = out.controller.SetWriteDeadline(time.Time{}) // the next call on this connection has no deadline
	return nil
}

// downloadWriter ends a download whose reader reads nothing.
type downloadWriter struct {
	http.ResponseWriter
	w *deadlineWriter
}

// Write implements io.Writer.
func (l downloadWriter) Write(b []byte) (int, error) { return l.w.Write(b) }
