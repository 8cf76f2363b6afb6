package host

import (
	"testing"

	"github.com/buildyard/buildyard/internal/scan/glob"
)

func TestExcludedPatterns(t *testing.T) {
	h := &Host{opts: Options{Exclude: []string{"/srv/[backup]", "/opt/*/.cache", "/**/node_modules"}}}
	var err error
	if h.excluded, err = glob.NewSet(h.opts.Exclude); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{
		"/srv/[backup]": true, "/srv/b": true, "/opt/ci/.cache": true, "/opt/.cache": false, "/node_modules": true,
		"/srv/app/node_modules": true, "/srv": false, "/": false,
	} {
		if got := h.isExcluded(dir); got != want {
			t.Errorf("%s: %t", dir, got)
		}
	}
}
