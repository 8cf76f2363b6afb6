package buildyard

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
	"github.com/buildyard/buildyard/internal/transfer"
)

// TestLocalRegistryAnswersLikeARemoteOne asks one registry in both ways.
func TestLocalRegistryAnswersLikeARemoteOne(t *testing.T) {
	reg, err := registry.Open(t.Context(), registry.Options{Base: t.TempDir(), Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(rest.Handler(registryrest.Routes(reg), slog.New(slog.DiscardHandler)))
	t.Cleanup(func() {
		server.Close()
		_ = reg.Close()
	})
	client, err := transfer.New(transfer.Options{BaseURL: server.URL, MaxAttempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	const id, unknown = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000001"
	http := apiClient{base: server.URL}
	var session api.PushSession
	offer := map[string]any{
		"id": id, "name": "debian", "tag": "v1", "arch": "amd64",
		"config": map[string]any{"ram": "4G"}, "files": []any{},
	}
	if err := http.send(t.Context(), "POST", "/registry/v2/push", offer, &session); err != nil {
		t.Fatal(err)
	}
	if err := http.send(t.Context(), "POST", "/registry/v2/push/"+session.Session+"/commit", nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := (localRegistry{registry: reg}).UploadFile(t.Context(), "up/load.gz", []byte("content")); err != nil {
		t.Fatal(err)
	}
	number := func(n int) *int { return &n }
	for name, ask := range map[string]func(r registryAPI) (any, error){
		"list":             func(r registryAPI) (any, error) { return r.ListTemplates(t.Context()) },
		"detail":           func(r registryAPI) (any, error) { return r.TemplateDetail(t.Context(), id) },
		"unknown template": func(r registryAPI) (any, error) { return r.TemplateDetail(t.Context(), unknown) },
		"info": func(r registryAPI) (any, error) {
			return r.VersionConfig(t.Context(), transfer.VersionRef{ID: id, Number: number(0)})
		},
		"other number": func(r registryAPI) (any, error) {
			return r.VersionConfig(t.Context(), transfer.VersionRef{ID: id, Number: number(7)})
		},
		"other bytes": func(r registryAPI) (any, error) {
			return r.VersionConfig(t.Context(), transfer.VersionRef{ID: id, Number: number(0), ContentID: "x"})
		},
		"revert of other bytes": func(r registryAPI) (any, error) {
			return nil, r.Revert(t.Context(), transfer.VersionRef{ID: id, Number: number(0), ContentID: "x"})
		},
		"delete of nothing": func(r registryAPI) (any, error) { return nil, r.DeleteTemplate(t.Context(), unknown) },
		"status":            func(r registryAPI) (any, error) { return r.Status(t.Context()) },
		"pause":             func(r registryAPI) (any, error) { return nil, r.PauseGC(t.Context(), time.Second) },
		"upload": func(r registryAPI) (any, error) {
			return nil,
				r.UploadFile(t.Context(), "a dir/b.gz", []byte("content"))
		},
		"download": func(r registryAPI) (any, error) {
			return r.DownloadFile(t.Context(), "up/load.gz", 7)
		},
		"too much":         func(r registryAPI) (any, error) { return r.DownloadFile(t.Context(), "up/load.gz", 6) },
		"download nothing": func(r registryAPI) (any, error) { return r.DownloadFile(t.Context(), "up/nothing.gz", 7) },
		"remove nothing":   func(r registryAPI) (any, error) { return nil, r.RemoveFile(t.Context(), "up/nothing.gz") },
		"no pause":         func(r registryAPI) (any, error) { return nil, r.PauseGC(t.Context(), -time.Second) },
	} {
		here, hereErr := ask(localRegistry{registry: reg})
		there, thereErr := ask(&registryCalls{client: client, address: server.URL})
		if diff := cmp.Diff(there, here); diff != "" || (hereErr == nil) != (thereErr == nil) {
			t.Errorf("%s: %v and %v (-remote +local):\n%s", name, thereErr, hereErr, diff)
		}
		if hereErr != nil && farm.CodeOf(hereErr) != farm.CodeOf(thereErr) {
			t.Errorf("%s: %s here, %s there: %v", name, farm.CodeOf(hereErr), farm.CodeOf(thereErr),
				fmt.Sprint(thereErr))
		}
	}
}
