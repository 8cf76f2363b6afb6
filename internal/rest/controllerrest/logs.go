package controllerrest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// The permissions of the routes that are proxied to the registry.
const (
	permLogs  = "view_logs"
	permFiles = "get_registry_files"
)

// logPage is the path of the registry's page that shows a log.
const logPage = "/registry/log/page"

// logRoutes returns the routes of the registry's logs and files, for clients that reach only the controller.
func (s *server) logRoutes() []rest.Route {
	list := []rest.Route{
		{Pattern: "GET /api/v1/vm/logs", Permission: permLogs, HandleRaw: s.vmLogs},
		{
			Pattern: "GET /api/v1/registry/files", Permission: permFiles, Waits: true,
			HandleRaw: s.proxyTo("/registry/files"),
		},
		{Pattern: "GET /api/v1/registry/files/{path...}", Permission: permFiles, Waits: true, HandleRaw: s.proxyFile},
	}
	for _, what := range []string{"services", "files", "view", "entries", path.Base(logPage), "archive"} {
		list = append(list, rest.Route{Pattern: "GET /api/v1/log/" +
			what, Permission: permLogs, Waits: true, HandleRaw: s.proxyTo("/registry/log/" + what)})
	}
	return append(list, rest.Route{
		Pattern: "GET /api/v1/log/stream", Permission: permLogs, Waits: true, Streams: true, HandleRaw: s.logStream,
	})
}

// logStream proxies a stream of logs, within the limit of open streams.
func (s *server) logStream(w http.ResponseWriter, r *http.Request) error {
	release, err := s.logStreams.Acquire(r)
	if err != nil {
		return err
	}
	defer release()
	return s.proxyRequest(w, r, "/registry/log/stream")
}

// passOnTimeout is the timeout for the first response bytes of the registry: clients abort after 5 s.
const passOnTimeout = 4 * time.Second

// proxyTo returns a handler that proxies to a path of the registry.
func (s *server) proxyTo(to string) rest.RawHandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error { return s.proxyRequest(w, r, to) }
}

// proxyFile proxies a download. The path is the client's, and the registry authorizes it.
func (s *server) proxyFile(w http.ResponseWriter, r *http.Request) error {
	return s.proxyRequest(w, r, "/registry/files/"+r.PathValue("path"))
}

// proxyRequest proxies a request and streams the response back. It does not forward the caller's credentials.
func (s *server) proxyRequest(w http.ResponseWriter, r *http.Request, to string) error {
	target, err := url.Parse(s.registryAddress)
	if err != nil || s.registryAddress == "" {
		return farm.Unavailable(err, "No registry is configured at this controller")
	}
	if path.Clean(to) != to { // the registry has no route for it
		return farm.NotFound()
	}
	var failed error
	proxy := httputil.ReverseProxy{
		Transport: s.registryTransport, FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = &url.URL{
				Scheme: target.Scheme, Host: target.Host, RawQuery: p.In.URL.RawQuery,
				Path: target.Path + to, RawPath: target.EscapedPath() + escapePath(to),
			}
			p.Out.Host = target.Host
			for name := range p.Out.Header {
				if isCredentialHeader(name) {
					p.Out.Header.Del(name)
				}
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			sandboxResponse(resp.Header, to)
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
	}
	proxy.ServeHTTP(w, r)
	return s.registryUnreachable(failed)
}

// isCredentialHeader reports whether a header contains the caller's credentials for this service, which are not
// forwarded.
func isCredentialHeader(header string) bool {
	return header == "Authorization" || header == "Cookie" || strings.HasPrefix(header, "Ssl-Client-")
}

// sandboxResponse restricts what a browser does with a response of the registry: it has the origin of this service,
// for which the browser has a login cookie.
func sandboxResponse(h http.Header, from string) {
	h.Del(rest.RequestIDHeader) // the client gets the ID of this request
	h.Del("Set-Cookie")
	h.Set("X-Content-Type-Options", "nosniff")
	if from != logPage { // which has a script, and its own policy
		h.Set("Content-Security-Policy", "sandbox")
	}
}

// escapePath escapes each part of a path for a URL.
func escapePath(to string) string {
	parts := strings.Split(to, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}

// registryUnreachable returns an error that the registry is unreachable, or err itself if it has the code unavailable.
func (s *server) registryUnreachable(err error) error {
	if err == nil || farm.CodeOf(err) == farm.CodeUnavailable {
		return err
	}
	return farm.Unavailable(err, "The registry at %s cannot be reached; try again", s.registryAddress)
}

// vmLogs returns the list of logs of an instance whose start or save failed, or one of them.
func (s *server) vmLogs(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.ReadParams(w, r)
	if err != nil {
		return err
	}
	id, file := strings.ToLower(p.Required("id")), p.String("file")
	if err := p.Err(); err != nil {
		return err
	}
	if uuid.Validate(id) != nil || len(id) != 36 || strings.Contains(file, "/") {
		return farm.NotFound()
	}
	dir := path.Join("logs", id)
	if file != "" {
		return s.proxyRequest(w, r, "/registry/files/"+dir+"/"+file)
	}
	list, err := s.registryFiles(r.Context(), dir)
	if farm.CodeOf(err) == farm.CodeNotFound {
		_, err = s.controller.Instances.Get(r.Context(), id) // an instance without logs
	}
	if err != nil {
		return err
	}
	return rest.WriteResponse(w, r, rest.NonNil(list))
}

// maxFileList bounds the registry's list of the logs of one VM, in bytes.
const maxFileList = 4 << 20

// registryFiles lists a directory of the registry's files.
func (s *server) registryFiles(ctx context.Context, dir string) ([]api.StoredFile, error) {
	ctx, cancel := context.WithTimeout(ctx, passOnTimeout)
	defer cancel()
	address := s.registryAddress + "/registry/files?dir=" + url.QueryEscape(dir)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil) //nolint:gosec // a setting; dir is made of a UUID
	if err != nil {
		return nil, s.registryUnreachable(err)
	}
	resp, err := s.registryTransport.RoundTrip(req)
	if err != nil {
		return nil, s.registryUnreachable(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxFileList))
	if err != nil {
		return nil, s.registryUnreachable(err)
	}
	var e api.Envelope[[]api.StoredFile]
	switch err := json.Unmarshal(raw, &e); {
	case err != nil:
		return nil, s.registryUnreachable(err)
	case e.Status == api.StatusOK:
		return e.Body, nil
	case e.Message == farm.NotFoundMessage:
		return nil, farm.NotFound()
	case resp.StatusCode == http.StatusForbidden:
		return nil, farm.Errorf(farm.CodeForbidden, "%s", e.Message)
	default:
		return nil, farm.Errorf(farm.CodeUnavailable, "%s", e.Message)
	}
}
