package buildyard

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// silent is a registry that accepts a call and never answers.
type silent struct{}

func (silent) ListTemplates(ctx context.Context) ([]api.Template, error) { return nil, wait(ctx) }

func (silent) TemplateDetail(ctx context.Context, _ string) (api.TemplateDetail, error) {
	return api.TemplateDetail{}, wait(ctx)
}

func (silent) VersionConfig(ctx context.Context, _ transfer.VersionRef) (api.TemplateConfig, error) {
	return api.TemplateConfig{}, wait(ctx)
}

func (silent) DiskInfo(ctx context.Context) (api.DiskInfo, error) { return api.DiskInfo{}, wait(ctx) }

func (silent) Status(ctx context.Context) (api.RegistryStatus, error) {
	return api.RegistryStatus{}, wait(ctx)
}

func (silent) DeleteTemplate(ctx context.Context, _ string) error { return wait(ctx) }

func (silent) Revert(ctx context.Context, _ transfer.VersionRef) error { return wait(ctx) }

func (silent) CallerRights(ctx context.Context, _ string) (*api.CallerRights, error) {
	return nil, wait(ctx)
}

func (silent) PauseGC(ctx context.Context, _ time.Duration) error { return wait(ctx) }

func (silent) UploadFile(ctx context.Context, _ string, _ []byte) error { return wait(ctx) }

func (silent) DownloadFile(ctx context.Context, _ string, _ int64) ([]byte, error) {
	return nil, wait(ctx)
}

func (silent) RemoveFile(ctx context.Context, _ string) error { return wait(ctx) }

func wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestCallsOfASilentRegistryEnd(t *testing.T) {
	calls := &registryCalls{client: silent{}, address: "http://far:8089"}
	start := func(ctx context.Context) error {
		_, first := calls.TemplateDetail(ctx, "x")
		_, second := calls.VersionConfig(ctx, transfer.VersionRef{ID: "x"})
		return errors.Join(first, second)
	}
	for name, do := range map[string]func(context.Context) error{
		"list":     func(ctx context.Context) error { _, err := calls.ListTemplates(ctx); return err },
		"disk":     func(ctx context.Context) error { _, err := calls.DiskInfo(ctx); return err },
		"status":   func(ctx context.Context) error { _, err := calls.Status(ctx); return err },
		"pause":    func(ctx context.Context) error { return calls.PauseGC(ctx, time.Minute) },
		"delete":   func(ctx context.Context) error { return calls.DeleteTemplate(ctx, "x") },
		"upload":   func(ctx context.Context) error { return calls.UploadFile(ctx, "x", nil) },
		"download": func(ctx context.Context) error { _, err := calls.DownloadFile(ctx, "x", 1); return err },
		"remove":   func(ctx context.Context) error { return calls.RemoveFile(ctx, "x") },
		"revert": func(ctx context.Context) error {
			_, first := calls.TemplateDetail(ctx, "x")
			return errors.Join(first, calls.Revert(ctx, transfer.VersionRef{ID: "x"}))
		},
		"start": start,
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := do(t.Context())
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("%s took %s", name, took)
			}
			const says = "The registry at http://far:8089 cannot be reached; try again"
			if farm.CodeOf(err) != farm.CodeUnavailable || !strings.HasPrefix(err.Error(), says) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := calls.ListTemplates(gone); !errors.Is(err, context.Canceled) || farm.CodeOf(err) != farm.CodeInternal {
		t.Errorf("a client that is gone is blamed on the registry: %v", err)
	}
}

// TestAControllerAnswersWhileItsRegistryHangs asks a whole controller whose registry
// accepts connections and stays silent.
func TestAControllerAnswersWhileItsRegistryHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for real time-outs")
	}
	var lc net.ListenConfig
	hung, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hung.Close() }() // the system accepts into the backlog; no process ever reads
	registry := "http://" + hung.Addr().String()
	s, stop := startController(t, t.TempDir(), false, map[string]string{"registry": registry})
	defer stop()
	client := &apiClient{base: s.URL()}
	sentence := "The registry at " + registry + " cannot be reached; try again"
	t.Run("calls", func(t *testing.T) {
		t.Run("status", func(t *testing.T) {
			t.Parallel()
			var status api.ControllerStatus
			within(t, func() error { return client.get(t.Context(), "/api/v1/status", &status) })
			if status.Status != "Running" || status.RegistryStatus != "FAIL" {
				t.Errorf("status = %+v", status)
			}
		})
		for _, path := range []string{
			"/api/v1/registry/vm", "/api/v1/registry/disk",
			"/api/v1/registry/vm?id=11111111-2222-4333-8444-555555555555",
		} {
			t.Run(path, func(t *testing.T) {
				t.Parallel()
				var err error
				within(t, func() error { err = client.get(t.Context(), path, nil); return nil })
				if err == nil || err.Error() != sentence {
					t.Errorf("error is %v, want %q", err, sentence)
				}
			})
		}
		t.Run("start", func(t *testing.T) {
			t.Parallel()
			var err error
			within(t, func() error {
				err = client.send(t.Context(), http.MethodPost, "/api/v1/vm",
					map[string]any{"vmid": "11111111-2222-4333-8444-555555555555"}, nil)
				return nil
			})
			if err == nil || !strings.Contains(err.Error(), "cannot be reached; try again") {
				t.Errorf("error is %v", err)
			}
		})
	})
}

// within fails when a call takes as long as clients wait. A busy machine may delay one: a call without a time limit is
// late each time.
func within(t *testing.T, do func() error) {
	t.Helper()
	var took time.Duration
	for range 3 {
		began := time.Now()
		if err := do(); err != nil {
			t.Error(err)
		}
		if took = time.Since(began); took <= 4900*time.Millisecond {
			return
		}
	}
	t.Errorf("answered after %s, three times", took)
}
