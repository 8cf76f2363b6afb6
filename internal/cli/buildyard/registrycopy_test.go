package buildyard

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/cli"
)

// TestCopyReadsSettingsOfARegistry: the settings file of the registry on the bucket is also that of the copy.
func TestCopyReadsSettingsOfARegistry(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "registry.conf")
	text := "SVC_BASE_PATH=" + filepath.Join(dir, "missing") + "\n" +
		"SVC_BACKEND_TYPE=s3\nSVC_BACKEND_S3_BUCKET=templates\n" +
		"SVC_BACKEND_S3_ENDPOINT=http://127.0.0.1:1\nSVC_LISTEN_ADDR=:8089\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	var out bytes.Buffer
	code := Main(t.Context(), []string{"registry", "copy", "--to", "s3://templates/site-1", "--config", file},
		Streams{Out: &out, Err: &out})
	if code != cli.ExitFailed || !strings.Contains(out.String(), "missing") {
		t.Errorf("exit %d: %s", code, out.String())
	}
}
