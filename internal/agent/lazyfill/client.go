package lazyfill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
	"github.com/buildyard/buildyard/internal/transfer"
)

const (
	startTime  = 30 * time.Second // for a process to answer
	askTime    = 10 * time.Second
	askAgain   = 20 * time.Millisecond
	maxAnswer  = 16 << 20
	controlURL = "http://fill"
)

// Program is how a process is started.
type Program struct {
	Path string
	Args []string // before the directory
	Env  []string // the whole environment, "KEY=value"
}

// Handle controls the process of a version. It may be used from many goroutines.
type Handle struct {
	dir  string
	http *http.Client
}

// Start starts the process of a directory, which is created, unless it runs, and waits until it answers. An order that
// differs from that of a running process has no effect on it.
func Start(ctx context.Context, dir string, o Order, program Program) (*Handle, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	h := open(dir, o)
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if _, err := h.State(ctx); err == nil {
		return h, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := giveOrder(dir, o); err != nil {
		return nil, err
	}
	proc, err := cliproc.StartDetached(cliproc.Command{
		Path: program.Path, Args: append(append([]string{}, program.Args...), dir), Env: program.Env,
	}, filepath.Join(dir, logFile))
	if err != nil {
		return nil, err
	}
	for {
		_, err := h.State(ctx)
		if err == nil {
			return h, nil
		}
		select {
		case <-ctx.Done():
			err = errors.Join(err, proc.Kill()) // otherwise it would begin when nothing waits for it any more
			return nil, fmt.Errorf("the process that fills version %s does not answer: %w; see %s", o.ContentID, err,
				filepath.Join(dir, logFile))
		case <-time.After(askAgain):
		}
		if !proc.IsAlive() {
			if _, err := h.State(ctx); err == nil { // another one had the lock
				return h, nil
			}
			return nil, fmt.Errorf("the process that fills version %s has ended; see %s", o.ContentID,
				filepath.Join(dir, logFile))
		}
	}
}

// giveOrder writes the order, unless all of its version is here: the process has noted that in its order.
func giveOrder(dir string, o Order) error {
	var given Order
	err := readJSON(filepath.Join(dir, orderFile), &given)
	if err == nil && given.ContentID == o.ContentID && len(given.Finished) > 0 {
		return nil
	}
	return writeJSON(dir, orderFile, o)
}

// Open returns the handle of the process that has the order of a directory; fs.ErrNotExist: it has none.
func Open(dir string) (*Handle, Order, error) {
	var o Order
	if err := readJSON(filepath.Join(dir, orderFile), &o); err != nil {
		return nil, o, err
	}
	return open(dir, o), o, nil
}

func open(dir string, o Order) *Handle {
	path := controlPath(o)
	return &Handle{dir, &http.Client{Timeout: askTime, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
		DisableKeepAlives: true,
	}}}
}

// State asks how far the process is. An error means that it does not answer.
func (h *Handle) State(ctx context.Context) (s State, err error) {
	return s, h.call(ctx, http.MethodGet, "/state", nil, &s)
}

// SetToken hands over the value of the Authorization header for the registry.
func (h *Handle) SetToken(ctx context.Context, header string) error {
	return h.call(ctx, http.MethodPut, "/token", header, nil)
}

// SetPeers hands over other nodes that have, or pull, the version.
func (h *Handle) SetPeers(ctx context.Context, sources []api.Peer) error {
	return h.call(ctx, http.MethodPut, "/peers", sources, nil)
}

// Holding returns what is here of the version.
func (h *Handle) Holding(ctx context.Context) (out transfer.Holding, err error) {
	return out, h.call(ctx, http.MethodGet, "/holding", nil, &out)
}

// OpenRuns returns the bytes of ranges of a file, one after the other. transfer.ErrNotHere: not all of them are here.
func (h *Handle) OpenRuns(ctx context.Context, file string, runs []blob.Run) (io.ReadCloser, error) {
	body, err := json.Marshal(readOrder{file, runs})
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, controlURL+"/read", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	answer, err := h.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("ask the process that fills a version: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, errors.Join(transfer.ErrNotHere, answer.Body.Close())
	}
	return answer.Body, nil
}

// Serve opens the sockets of a VM and returns them by the names of the disks. A VM that is served keeps its own.
func (h *Handle) Serve(ctx context.Context, vm, processFile string) (map[string]string, error) {
	var got VM
	err := h.call(ctx, http.MethodPut, "/vms/"+vm, VM{ProcessFile: processFile}, &got)
	return got.Sockets, err
}

// Release closes the sockets of a VM.
func (h *Handle) Release(ctx context.Context, vm string) error {
	return h.call(ctx, http.MethodDelete, "/vms/"+vm, nil, nil)
}

// MarkBooted tells the process that a VM has booted. 30 s later it sends the registry what was read until then.
func (h *Handle) MarkBooted(ctx context.Context) error {
	return h.call(ctx, http.MethodPut, "/booted", nil, nil)
}

// End ends the process. What it pulled stays.
func (h *Handle) End(ctx context.Context) error {
	return h.call(ctx, http.MethodPost, "/end", nil, nil)
}

func (h *Handle) call(ctx context.Context, method, path string, body, to any) error {
	var sent io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, controlURL+path, sent)
	if err != nil {
		return err
	}
	answer, err := h.http.Do(r)
	if err != nil {
		return fmt.Errorf("ask the process that fills a version: %w", err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("ask the process that fills a version: %w", err)
	case answer.StatusCode != http.StatusOK:
		return errors.New(strings.TrimSpace(string(b)))
	case to == nil:
		return nil
	}
	return json.Unmarshal(b, to)
}
