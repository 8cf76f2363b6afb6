package registrymirror

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
)

// idleTimeout ends a request on which no byte moved for that long.
const idleTimeout = 30 * time.Second

// credential is what identifies a caller to the origin. It is never stored.
type credential struct {
	authorization string
	protocol      string // version of the protocol of pulls
}

func credentialOf(r *http.Request) credential {
	return credential{r.Header.Get("Authorization"), r.Header.Get(api.TransferHeader)}
}

// hash identifies a credential without revealing it.
func (c credential) hash() [sha256.Size]byte { return sha256.Sum256([]byte(c.authorization)) }

// origin sends requests to the registry.
type origin struct {
	base   *url.URL
	client *http.Client
}

// send sends a request without a body with the credential of a caller. The caller closes the body of the response.
func (o *origin) send(
	ctx context.Context, method, path string, c credential, rangeHeader string,
) (*http.Response, error) {
	address := *o.base
	path, query, _ := strings.Cut(path, "?")
	address.Path += path
	address.RawQuery = query
	req, err := http.NewRequestWithContext(ctx, method, address.String(), nil)
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{
		"Authorization": c.authorization, api.TransferHeader: c.protocol, "Range": rangeHeader,
	} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	return o.client.Do(req)
}

// byteRange is a part of a layer file, in bytes.
type byteRange struct{ off, n int64 }

// readRange writes a part of a layer, and returns how many bytes it received. Without a byte for idleTimeout it
// fails.
func (o *origin) readRange(
	ctx context.Context, path string, c credential, at byteRange, to io.Writer,
) (got int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(idleTimeout, func() { cancel(errIdle) })
	defer idle.Stop()
	resp, err := o.send(ctx, http.MethodGet, path, c, fmt.Sprintf("bytes=%d-%d", at.off, at.off+at.n-1))
	if err != nil {
		return 0, causeOf(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusPartialContent || resp.ContentLength != at.n {
		return 0, fmt.Errorf("the registry responded %s to a request for %d bytes", resp.Status, at.n)
	}
	buf := make([]byte, 256<<10)
	for got < at.n {
		read, err := resp.Body.Read(buf[:min(int64(len(buf)), at.n-got)])
		idle.Reset(idleTimeout)
		if read > 0 {
			got += int64(read)
			if _, err := to.Write(buf[:read]); err != nil {
				return got, err
			}
		}
		if err != nil && got < at.n {
			return got, causeOf(ctx, fmt.Errorf("after %d of %d bytes: %w", got, at.n, err))
		}
	}
	return got, nil
}

var errIdle = errors.New("the registry sent no byte for " + idleTimeout.String())

// causeOf returns why a request ended: the cause of the end of its context, or err.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
