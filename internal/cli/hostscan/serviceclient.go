package hostscan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/rest/hostrest"
)

// Limits of a call.
const (
	dialTimeout      = 5 * time.Second
	callTimeout      = time.Minute // of a short call
	maxResponseBytes = 1 << 30
)

// serviceClient calls the API of a service.
type serviceClient struct {
	baseURL string
	token   string
	client  *http.Client
}

// client returns a client of the service in the flags.
func (g *globals) client() (*serviceClient, error) {
	if g.port < 1 || g.port > 65535 {
		return nil, cli.Usage(fmt.Errorf("invalid --port %d: want 1 to 65535", g.port))
	}
	a := &serviceClient{baseURL: fmt.Sprintf("http://127.0.0.1:%d", g.port), client: &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // keeps the token
	}}
	here := true
	if g.url != "" {
		u, err := url.Parse(g.url)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" ||
			u.RawQuery != "" || u.User != nil {
			return nil, cli.Usage(errors.New("invalid --url: want a URL such as http://build-7:8081"))
		}
		a.baseURL, here = u.Scheme+"://"+u.Host, hostrest.IsLoopbackAddress(net.JoinHostPort(u.Hostname(), "0"))
	}
	var err error
	switch {
	case g.tokenFile != "":
		if a.token, err = readToken(g.tokenFile); err != nil {
			err = cli.Usage(fmt.Errorf("--token-file: %w", err))
		}
	case here: // the token created by the service of this machine, if this user may read it
		a.token = localToken()
	}
	return a, err
}

// get sends a GET request, and post a POST request. Both decode the body of the response into into.
func (a *serviceClient) get(ctx context.Context, path string, q url.Values, into any) error {
	return a.call(ctx, http.MethodGet, path, q, into)
}

func (a *serviceClient) post(ctx context.Context, path string, q url.Values, into any) error {
	return a.call(ctx, http.MethodPost, path, q, into)
}

func (a *serviceClient) call(ctx context.Context, method, path string, q url.Values, into any) error {
	target := a.baseURL + path
	if len(q) > 0 {
		target += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "hostscan")
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return a.unreachable(ctx, err)
	}
	defer resp.Body.Close()
	return a.readResponse(ctx, resp, into)
}

// unreachable returns advice about a service that does not answer.
func (a *serviceClient) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return cli.Exit(cli.ExitUnreachable,
		fmt.Errorf("host scanner at %s cannot be reached; start it with \"hostscan serve\", or set --port or --url: %w",
			a.baseURL, err))
}

// readResponse reads a response.
func (a *serviceClient) readResponse(ctx context.Context, resp *http.Response, into any) error {
	body := io.LimitReader(resp.Body, maxResponseBytes)
	var answer struct {
		Status string `json:"status"`
		Body   any    `json:"body"`
		Error  string `json:"error"`
	}
	answer.Body = into
	err := json.NewDecoder(body).Decode(&answer)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case resp.StatusCode == http.StatusOK && errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("response of the host scanner interrupted; see its log")
	case err != nil || answer.Status != api.StatusOK && answer.Status != api.StatusFail:
		return cli.Exit(cli.ExitUnreachable, fmt.Errorf("%s is not a host scanner; check the port", a.baseURL))
	case answer.Status == api.StatusOK:
		return nil
	}
	err = errors.New(answer.Error)
	switch resp.StatusCode {
	case http.StatusBadRequest:
		return cli.Usage(err)
	case http.StatusUnauthorized:
		what := "requires a token"
		if a.token != "" {
			what = "rejects this token"
		}
		return cli.Exit(cli.ExitDenied,
			fmt.Errorf("host scanner at %s %s; pass the token file with --token-file", a.baseURL, what))
	case http.StatusForbidden:
		return cli.Exit(cli.ExitDenied, err)
	case http.StatusServiceUnavailable:
		return cli.Exit(cli.ExitUnreachable, err)
	}
	return err
}

// status requests the status.
func (a *serviceClient) status(ctx context.Context) (api.HostStatus, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout,
		cli.Exit(cli.ExitTimeout, errors.New("host scanner timed out")))
	defer cancel()
	var s api.HostStatus
	err := a.get(ctx, "/v1/status", nil, &s)
	return s, err
}

// postChange requests a change of the state, and prints the new one.
func (g *globals) postChange(ctx context.Context, a *serviceClient, path string, q url.Values) (string, error) {
	var s api.HostState
	err := a.post(ctx, path, q, &s)
	return s.State, err
}

// printState prints the state.
func (g *globals) printState(state string) error {
	_, err := fmt.Fprintf(g.Out, "Scan State: %s\n", cli.EscapeName(state))
	return err
}

// directoryQuery returns the directory of a flag as a query of the service.
func directoryQuery(path string) (url.Values, error) {
	if path == "" {
		return url.Values{}, nil
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return url.Values{"path": {abs}}, nil
}
