package transfer_test

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/qcow2"
	"github.com/buildyard/buildyard/internal/qcow2/qcow2test"
	"github.com/buildyard/buildyard/internal/transfer"
)

// announced has the next negotiations of a server's clients noted.
func announced(t *testing.T, s *server) *api.PushRequest {
	var last api.PushRequest
	note := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/push") {
			raw, err := io.ReadAll(r.Body)
			if last = (api.PushRequest{}); err != nil || json.Unmarshal(raw, &last) != nil {
				t.Error("a negotiation cannot be read")
			}
			r.Body = io.NopCloser(bytes.NewReader(raw))
		}
		h.ServeHTTP(w, r)
	}
	s.disturb.Store(&note)
	return &last
}

// TestDataIsAnnounced: the client announces the maximum size of the data, so that the registry reserves space
// for it.
func TestDataIsAnnounced(t *testing.T) {
	rnd := rand.New(rand.NewPCG(21, 21))
	s := serve(t, t.TempDir())
	c := s.client(t)
	last := announced(t, s)
	disk := make([]byte, 64<<20)
	noise(rnd, disk[8<<20:10<<20])
	image := diskfile.Disk{Path: qcow2test.Image(t, make([]byte, len(disk)), disk), Format: "qcow2"}
	changed := bytes.Clone(disk)
	copy(changed[40<<20:], bytes.Repeat([]byte{3}, 5*qcow2.SubclusterBytes))
	above := image
	above.Overlays = []string{qcow2test.Image(t, disk, changed)}
	check := func(name string, low, high int64) {
		t.Helper()
		if got := last.Files[0].Data; got < low || got > high {
			t.Errorf("%s: %d bytes are announced, %d to %d were right", name, got, low, high)
		}
	}
	pushDisk(t, c, "sparse", sparse(t, 1<<30, 5<<20, grow(rnd, nil, 1<<20)), nil)
	check("a file with holes", 1<<20, 1<<20+64<<10)
	tip := pushDisk(t, c, "image", image, nil)
	check("an image", 2<<20, 2<<20)
	pushDisk(t, c, "changes", above, &transfer.PushParent{ChainID: tip, FileCount: 1})
	check("changes", 5*qcow2.SubclusterBytes, 5*qcow2.SubclusterBytes)
	pushDisk(t, c, "empty", sparse(t, 1<<30, 0, nil), nil)
	check("an empty disk", 1, 1)
	pushDisk(t, c, "compared", writeFile(t, "changed", changed), &transfer.PushParent{ChainID: tip, Disk: &image})
	check("what only comparing tells", 0, 0)
	thin := sparse(t, 1<<30, 5<<20, grow(rnd, nil, 1<<20))
	tip = pushDisk(t, c, "thin", thin, nil)
	next := sparse(t, 1<<30, 5<<20, grow(rnd, nil, 1<<20))
	pushDisk(t, c, "compared thin", next, &transfer.PushParent{ChainID: tip, Disk: &thin})
	check("a thin disk that is compared", 1<<20, 1<<20+64<<10)
	pushDisk(t, c, "refused", above, &transfer.PushParent{ChainID: tipless, FileCount: 1})
	check("a disk whose parent is not known", 2<<20, 3<<20)
}
