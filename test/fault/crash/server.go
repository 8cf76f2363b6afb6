package crash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/tools/failpoint/inject"
	"github.com/buildyard/buildyard/internal/transfer"
	"github.com/buildyard/buildyard/test/rig"
)

// server is one process of a registry and its client.
type server struct {
	*rig.Process
	base     string // of its storage
	patience time.Duration
	address  string
	client   *transfer.Client
	calls    rig.Client // for what the client of nodes does not do
}

// launch is how a registry is started.
type launch struct {
	plan  inject.Plan
	scrub bool // it verifies all layers
	// patience bounds what it should do automatically; 0: the usual.
	patience time.Duration
}

// start starts a registry on a storage. The server is returned also with an error: the process may
// have died during the start.
func (w *walk) start(ctx context.Context, base string, l launch) (*server, error) {
	address, err := rig.FreeAddr(ctx)
	if err != nil {
		return nil, err
	}
	setting, err := l.plan.Setting()
	if err != nil {
		return nil, err
	}
	rate := "0B"
	if l.scrub {
		rate = "1GB"
	}
	s := &server{base: base, patience: cmp.Or(l.patience, soon), address: "http://" +
		address, calls: rig.NewClient("http://" + address)}
	s.Process = rig.NewProcess(w.logs, "registry-"+filepath.Base(filepath.Dir(base)), "env", setting, w.program,
		"registry", "--listen-addr", address, "--base-path", base, "--scrub-rate", rate)
	if s.client, err = dial(s.address); err != nil {
		return nil, err
	}
	if err := errors.Join(os.RemoveAll(s.Log), s.Start()); err != nil {
		return s, err
	}
	return s, rig.Ready(ctx, s.Process, s.address)
}

// dial makes a client that tries once: what a kill does to a call must not be hidden.
func dial(address string) (*transfer.Client, error) {
	return transfer.New(transfer.Options{BaseURL: address, MaxAttempts: 1, IdleTimeout: 20 * time.Second})
}

// end ends the process in an orderly way, if it still runs.
func (s *server) end() error {
	s.client.Close()
	return s.End()
}

// died waits until the process has ended and reports whether it was killed. A call that failed may have come back a
// moment before.
func (s *server) died(ctx context.Context) bool {
	for deadline := time.Now().Add(5 * time.Second); s.Running() && time.Now().Before(deadline); {
		if !rig.Pause(ctx, 2*time.Millisecond) {
			return false
		}
	}
	return s.Killed()
}

// none is the state of a template that is not there.
const none = "none"

// state describes the template that all operations change as text: "amd64: v1 v2", or "amd64
// scanned: v1 v2" when results of a scan are attached.
func (s *server) state(ctx context.Context) (string, error) {
	list, err := s.client.ListTemplates(ctx)
	if err != nil {
		return "", err
	}
	for _, t := range list {
		if t.ID != template {
			continue
		}
		d, err := s.client.TemplateDetail(ctx, template)
		if err != nil {
			return "", err
		}
		var tags []string
		scanned := ""
		for _, v := range d.Versions {
			tags = append(tags, v.Tag)
			if v.Scan != nil {
				scanned = " scanned"
			}
		}
		return d.Arch + scanned + ": " + strings.Join(tags, " "), nil
	}
	return none, nil
}

// tagsOf returns the tags in a state.
func tagsOf(state string) []string {
	_, tags, _ := strings.Cut(state, ":")
	return strings.Fields(tags)
}

const upkeepPath = "/registry/v2/upkeep"

// upkeep has the registry do something and waits for its end.
func (s *server) upkeep(ctx context.Context, req api.StorageJobRequest) error {
	var u api.StorageJob
	if err := s.calls.Send(ctx, http.MethodPost, upkeepPath, req, &u); err != nil {
		return err
	}
	for u.State == api.StorageJobRunning {
		if !rig.Pause(ctx, 5*time.Millisecond) {
			return ctx.Err()
		}
		if err := s.calls.Send(ctx, http.MethodGet, upkeepPath, nil, &u); err != nil {
			return err
		}
	}
	if u.State != api.StorageJobDone {
		return errors.New(u.Problem)
	}
	return nil
}

// errNotYet is the error of an automatic operation that the registry has not done yet.
var errNotYet = errors.New("the registry has not done it")

// await polls until the registry has done something automatically.
func (s *server) await(ctx context.Context, done func() (bool, error)) error {
	for deadline := time.Now().Add(s.patience); ; {
		ok, err := done()
		switch {
		case err != nil:
			return err
		case ok:
			return nil
		case !s.Running():
			return fmt.Errorf("the registry has ended: %w", errNotYet)
		case time.Now().After(deadline):
			return errNotYet
		}
		if !rig.Pause(ctx, 5*time.Millisecond) {
			return ctx.Err()
		}
	}
}

func (s *server) stats(ctx context.Context) (stats api.RegistryStats, err error) {
	err = s.calls.Send(ctx, http.MethodGet, "/registry/v2/stats", nil, &stats)
	return stats, err
}
