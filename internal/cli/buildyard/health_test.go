package buildyard

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
)

// TestHealthcheckReadsSettings finds the address of a controller wherever its settings have it.
func TestHealthcheckReadsSettings(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	line := config.ListenAddr + "=" + strings.TrimPrefix(server.URL, "http://") + "\n"
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "controller.env")
	for _, tt := range []struct {
		name, initFile, settingsFile string
	}{
		{name: "made by init", initFile: line},
		{name: "settings file", initFile: config.ListenAddr + "=127.0.0.1:1\n", settingsFile: line},
		{name: "another data directory", settingsFile: config.DataDir + "=" + dir + "\n", initFile: line},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(config.ListenAddr, "")
			t.Setenv(config.DataDir, "")
			if !strings.Contains(tt.settingsFile, config.DataDir) {
				t.Setenv(config.DataDir, dir)
			}
			for path, text := range map[string]string{
				filepath.Join(dir, initSettingsFile): tt.initFile, file: tt.settingsFile,
			} {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			root := newCommand(Streams{Out: &out, Err: &out})
			if code := cli.Run(t.Context(), root, []string{"healthcheck", "--config", file}); code != 0 {
				t.Errorf("exit %d: %s", code, out.String())
			}
		})
	}
}
