package lazyfill

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/failurecause"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// readOrder is the body of a request of the agent for bytes that another node reads.
type readOrder struct {
	File string     `json:"file"`
	Runs []blob.Run `json:"runs"`
}

const (
	maxBody    = 128 << 10
	headerTime = 10 * time.Second
	endTime    = 10 * time.Second // for requests that are answered when the process ends
)

// controlPath is the control socket of a version. It is short: an address of a socket has about 100 bytes.
func controlPath(o Order) string {
	return filepath.Join(o.SocketDir, o.ContentID[:min(len(o.ContentID), 24)]+".control")
}

// listenControl opens the control socket, which only the user of this process can use.
func (p *process) listenControl() (net.Listener, error) {
	path := controlPath(p.order)
	l, err := listenUnix(path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// serveControl answers the agent until the context ends.
func (p *process) serveControl(ctx context.Context, l net.Listener) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) { respond(w, p.state(), nil) })
	mux.HandleFunc("PUT /token", func(w http.ResponseWriter, r *http.Request) {
		var header string
		err := decode(r, &header)
		if err == nil {
			p.token.set(header)
		}
		respond(w, p.state(), err)
	})
	mux.HandleFunc("PUT /peers", func(w http.ResponseWriter, r *http.Request) {
		var sources []api.Peer
		err := decode(r, &sources)
		if err == nil {
			p.sources.Store(&sources)
		}
		respond(w, p.state(), err)
	})
	mux.HandleFunc("GET /holding", func(w http.ResponseWriter, _ *http.Request) {
		partial := p.partial.Load()
		if partial == nil {
			respond(w, nil, transfer.ErrNotHere)
			return
		}
		respond(w, partial.Holding(), nil)
	})
	mux.HandleFunc("POST /read", func(w http.ResponseWriter, r *http.Request) {
		var in readOrder
		partial, err := p.partial.Load(), decode(r, &in)
		if partial == nil || err != nil {
			respond(w, nil, cmp.Or(err, transfer.ErrNotHere))
			return
		}
		body, err := partial.OpenRuns(in.File, in.Runs)
		if err != nil {
			respond(w, nil, err)
			return
		}
		_, _ = io.Copy(w, body) // the agent counts the bytes
	})
	mux.HandleFunc("PUT /vms/{id}", func(w http.ResponseWriter, r *http.Request) {
		var vm VM
		err := decode(r, &vm)
		if err == nil {
			vm, err = p.serveVM(ctx, r.PathValue("id"), vm.ProcessFile)
		}
		respond(w, vm, err)
	})
	mux.HandleFunc("DELETE /vms/{id}", func(w http.ResponseWriter, r *http.Request) {
		err := p.endVM(r.PathValue("id"))
		respond(w, p.state(), err)
	})
	mux.HandleFunc("PUT /booted", func(w http.ResponseWriter, _ *http.Request) {
		p.bootedOnce.Do(func() { close(p.booted) })
		respond(w, p.state(), nil)
	})
	mux.HandleFunc("POST /end", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, p.state(), nil)
		p.end()
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headerTime, ReadTimeout: headerTime}
	stop := context.AfterFunc(ctx, func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer cancel()
		_ = server.Shutdown(limited)
	})
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		p.log.Error("the control socket failed", "error", err)
		p.end()
	}
}

func decode(r *http.Request, v any) error {
	return json.NewDecoder(io.LimitReader(r.Body, maxBody)).Decode(v)
}

// respond answers with a value, or with the text of an error.
func respond(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the agent asks again
}

// serveVM opens the sockets of a VM; those that it has stay. They are in a file before the agent learns of them, so
// that a process that follows a killed one has them too.
func (p *process) serveVM(ctx context.Context, id, processFile string) (VM, error) {
	if !vmPattern.MatchString(id) || !filepath.IsAbs(processFile) {
		return VM{}, errors.New("invalid ID of a VM or path of its process file")
	}
	p.vmsMu.Lock() // of two requests for one VM, the second gets the sockets of the first
	defer p.vmsMu.Unlock()
	p.mu.Lock()
	old, count, failure := p.vms[id], len(p.vms), p.failure
	p.mu.Unlock()
	switch {
	case failure != nil:
		return VM{}, fmt.Errorf("the version cannot be pulled: %w", failure)
	case old != nil:
		return old.VM, nil
	case count >= maxVMs:
		return VM{}, errors.New("the limit of VMs that read one version before it is here is reached")
	}
	sockets, err := p.newSockets()
	if err != nil {
		return VM{}, err
	}
	vm := VM{ProcessFile: processFile, Sockets: sockets}
	if err := p.addVM(ctx, id, vm); err != nil {
		return VM{}, err
	}
	if err := p.writeServed(); err != nil {
		p.removeVM(id)
		return VM{}, err
	}
	return vm, nil
}

// endVM closes the sockets of a VM.
func (p *process) endVM(id string) error {
	p.vmsMu.Lock()
	defer p.vmsMu.Unlock()
	p.removeVM(id)
	return p.writeServed()
}

func (p *process) writeServed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return writeJSON(p.dir, servedFile, p.servedLocked())
}

func (p *process) servedLocked() map[string]VM {
	served := map[string]VM{}
	for id, v := range p.vms {
		served[id] = v.VM
	}
	return served
}

// state returns how far the process is.
func (p *process) state() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := State{
		PID: os.Getpid(), Phase: p.phase, Progress: p.progress.Fraction(), Rate: p.progress.Rate, VMs: p.servedLocked(),
		Fetched: p.fetched, PeerBytes: p.peerBytes, Waiting: p.waiting, Unauthorized: p.token.isRefused(),
		Excluded: p.excluded.List(time.Now()),
		Disks:    map[string]Disk{}, Files: map[string]File{}, Waits: map[string]time.Time{},
	}
	for id, vm := range p.vms {
		if since, waits := vm.reads.waitsSince(); waits {
			s.Waits[id] = since
		}
	}
	if p.failure != nil {
		s.Error, s.Class = p.failure.Error(), failurecause.Of(p.failure, farm.StepPull).Class
	}
	if p.problem != nil {
		s.Problem = p.problem.Error()
	}
	for name, d := range p.disks {
		disk := Disk{Size: d.Size()}
		if lazy, ok := d.(*transfer.LazyDisk); ok {
			now := lazy.State()
			disk.Bytes, disk.Total, disk.Readers = now.Bytes, now.Total, now.Readers
			disk.Read, disk.ReadBytes = now.Read, now.ReadBytes
		}
		s.Disks[name] = disk
	}
	if p.phase == Complete {
		s.Progress = 1
		maps.Copy(s.Files, p.finished)
	}
	return s
}

func filesOf(r transfer.PullResult) map[string]File {
	formats := map[string]string{}
	for _, f := range r.Manifest.Files {
		formats[f.Name] = f.Format
	}
	files := map[string]File{}
	for _, f := range r.Files {
		files[f.Name] = File{ChainID: f.ChainID, Format: formats[f.Name]}
	}
	return files
}
