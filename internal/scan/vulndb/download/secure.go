package download

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
)

const maxRedirects = 5

// CheckURL returns an error unless a URL is https, or http to this machine.
func CheckURL(u *url.URL) error {
	switch {
	case u.Host == "" || u.User != nil:
		return fmt.Errorf("invalid URL %.200q: want https://HOST/PATH without credentials", u.Redacted())
	case u.Scheme == "https", u.Scheme == "http" && isLoopback(u.Hostname()):
		return nil
	}
	return fmt.Errorf("refuse %.200s: want https; http is for servers on this machine", u.Redacted())
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// checkRedirect applies CheckURL to a redirect, and removes the caller's headers when it leads to another host: a
// key is for the host that it was meant for.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return &permanentError{fmt.Errorf("the server redirected more than %d times", maxRedirects)}
	}
	if err := CheckURL(req.URL); err != nil {
		return &permanentError{fmt.Errorf("redirect: %w", err)}
	}
	if via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return &permanentError{errors.New("a redirect leads from https to " + req.URL.Scheme)}
	}
	if req.URL.Host != via[0].URL.Host {
		for name := range req.Header {
			if !forwardedHeaders[name] {
				req.Header.Del(name)
			}
		}
	}
	return nil
}

// forwardedHeaders are those that any host may see.
var forwardedHeaders = map[string]bool{
	"User-Agent": true, "Accept-Encoding": true, "Range": true, "If-Range": true, "If-None-Match": true,
	"If-Modified-Since": true,
}

// permanentError is a failure that another attempt would repeat.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }
