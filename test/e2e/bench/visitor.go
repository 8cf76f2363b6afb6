package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// visitor does over HTTP what a tab of a browser does, with separate connections.
type visitor struct {
	*stage
	http *http.Client
}

// ofBrowser is how many connections a browser opens to one server.
const ofBrowser = 6

func (s *stage) visitor() *visitor {
	return &visitor{
		s, &http.Client{Transport: &http.Transport{MaxConnsPerHost: ofBrowser, MaxIdleConnsPerHost: ofBrowser}},
	}
}

// open sends a request as the page that is open does.
func (v *visitor) open(ctx context.Context, path string, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.cloud.Controller+path, nil)
	if err != nil {
		return nil, err
	}
	for _, c := range v.cookies {
		req.AddCookie(c)
	}
	req.Header.Set("Accept", "text/html")
	req.Header.Set("Accept-Encoding", "gzip, deflate, br, zstd")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	for pair := range slices.Chunk(header, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	resp, err := v.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("GET %s: HTTP %d", path, resp.StatusCode)
	}
	return resp, nil
}

// get reads a page, or the part of it that refreshes, and returns how long that took.
func (v *visitor) get(ctx context.Context, path string, header ...string) (text []byte, took time.Duration, err error) {
	began := time.Now()
	resp, err := v.open(ctx, path, header...)
	if err != nil {
		return nil, 0, err
	}
	text, err = io.ReadAll(resp.Body)
	took = time.Since(began)
	_ = resp.Body.Close()
	return text, took, err
}

// read returns what a page or a file has, decoded.
func (v *visitor) read(ctx context.Context, path string, header ...string) ([]byte, error) {
	resp, err := v.open(ctx, path, header...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := decoded(resp)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(body)
}

// decoded returns the body of a response without its encoding.
func decoded(resp *http.Response) (io.Reader, error) {
	switch encoding := resp.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return resp.Body, nil
	case "gzip":
		return gzip.NewReader(resp.Body)
	case "zstd":
		return zstd.NewReader(resp.Body, zstd.WithDecoderConcurrency(1))
	default:
		return nil, fmt.Errorf("%s is encoded as %s, which this client cannot read", resp.Request.URL.Path, encoding)
	}
}

// refresh asks for what refreshes a page, as htmx does.
func (v *visitor) refresh(ctx context.Context, path string) (text []byte, took time.Duration, err error) {
	return v.get(ctx, path, "Hx-Request", "true", "Hx-Current-Url", v.cloud.Controller+path)
}

var (
	fileOfPage   = regexp.MustCompile(`(?:src|href)="(/assets/[^"#]+)`)
	fileOfModule = regexp.MustCompile(`(?m)^import .*?"\./([^"]+)"`)
	liveOfPage   = regexp.MustCompile(`data-live="([^"]+)"`)
)

// enter opens a page with all its files, and returns the address of its stream.
func (v *visitor) enter(ctx context.Context, path string) (live string, err error) {
	page, err := v.read(ctx, path, "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document")
	if err != nil {
		return "", err
	}
	var files []string
	for _, m := range fileOfPage.FindAllSubmatch(page, -1) {
		files = append(files, string(m[1]))
	}
	had := map[string]bool{}
	for len(files) > 0 {
		name := files[0]
		if files = files[1:]; had[name] {
			continue
		}
		had[name] = true
		text, err := v.read(ctx, name)
		if err != nil {
			return "", err
		}
		for _, m := range fileOfModule.FindAllSubmatch(text, -1) {
			files = append(files, name[:strings.LastIndexByte(name, '/')+1]+string(m[1]))
		}
	}
	m := liveOfPage.FindSubmatch(page)
	if m == nil {
		return "", fmt.Errorf("%s has no stream", path)
	}
	return strings.ReplaceAll(string(m[1]), "&amp;", "&"), nil
}

// stay keeps a page open until the context ends: it refreshes when the stream notifies it of a
// change, and periodically. refreshed is called after each.
func (v *visitor) stay(ctx context.Context, path, live string, refreshed func(time.Duration)) error {
	resp, err := v.open(ctx, live, "Accept", "text/event-stream")
	if err != nil {
		return ended(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := decoded(resp)
	if err != nil {
		return ended(ctx, err)
	}
	events := make(chan struct{}, 1)
	go func() {
		defer close(events)
		for lines := bufio.NewScanner(body); lines.Scan(); {
			if lines.Text() == "event: changed" {
				select {
				case events <- struct{}{}:
				default: // it refreshes; once more is enough
				}
			}
		}
	}()
	periodic := time.NewTicker(10 * time.Second)
	defer periodic.Stop()
	for {
		select {
		case _, open := <-events:
			if !open {
				return ended(ctx, fmt.Errorf("the stream of %s ended", path))
			}
		case <-periodic.C:
		case <-ctx.Done():
			return nil
		}
		_, took, err := v.refresh(ctx, path)
		if err != nil {
			return ended(ctx, err)
		}
		refreshed(took)
	}
}

// ended is the error of a call, none where the run was over.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
