package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/clienttls"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/farm"
)

// Layers that cannot be built are refused before anything is fetched.
func TestCheckLayers(t *testing.T) {
	layer := func(offset, length int64) api.PullLayer {
		return api.PullLayer{URLs: []string{"u"}, IndexOffset: offset, IndexLength: length}
	}
	layers := func(n int, l api.PullLayer) (out []api.PullLayer) {
		for range n {
			out = append(out, l)
		}
		return out
	}
	for name, c := range map[string]struct {
		layers []api.PullLayer
		want   string
	}{
		"one":             {layers(1, layer(0, 1)), ""},
		"none":            {nil, "has 0 layers"},
		"most":            {layers(blob.MaxChainLayers, layer(0, 1)), ""},
		"more":            {layers(blob.MaxChainLayers+1, layer(0, 1)), "has 129 layers"},
		"nowhere":         {layers(1, api.PullLayer{IndexLength: 1}), "returned no URL"},
		"without index":   {layers(1, layer(0, 0)), "0 bytes at 0"},
		"before its file": {layers(1, layer(-1, 5)), "5 bytes at -1"},
		"largest index":   {layers(1, layer(9, blob.MaxIndexSize)), ""},
		"larger index":    {layers(1, layer(9, blob.MaxIndexSize+1)), "bytes at 9"},
		"most indexes":    {layers(2, layer(9, blob.MaxChainIndexSize/2)), ""},
		"more indexes":    {append(layers(2, layer(9, blob.MaxChainIndexSize/2)), layer(9, 1)), "want at most 64 MiB"},
	} {
		err := checkPullLayers(api.PullFile{Name: "disk", Layers: c.layers})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if chainIDOf(api.PullLayer{Root: "r"}) != "r" || chainIDOf(api.PullLayer{Root: "r", Tip: "t"}) != "t" {
		t.Error("a layer has another tip")
	}
}

// A disk is usable as a base when all of its files exist and it has few overlays.
func TestPresent(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, size := range map[string]int{"raw": 100, "over": 5} {
		if err := os.WriteFile(at(name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(at("raw"), at("link")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		d    diskfile.Disk
		want bool
	}{
		"raw":               {diskfile.Disk{Path: at("raw")}, true},
		"raw, said":         {diskfile.Disk{Path: at("raw"), Format: "raw"}, true},
		"of another size":   {diskfile.Disk{Path: at("over")}, false},
		"an image":          {diskfile.Disk{Path: at("over"), Format: "qcow2"}, true},
		"with overlays":     {diskfile.Disk{Path: at("over"), Overlays: []string{at("over")}}, true},
		"an overlay is off": {diskfile.Disk{Path: at("raw"), Overlays: []string{at("none")}}, false},
		"it is off":         {diskfile.Disk{Path: at("none")}, false},
		"a link":            {diskfile.Disk{Path: at("link")}, false},
		"a directory":       {diskfile.Disk{Path: dir, Format: "qcow2"}, false},
	} {
		if got := filesExist(c.d, 100); got != c.want || canBuildOn(c.d, 100) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for n, want := range map[int]bool{MaxOverlays - 1: true, MaxOverlays: false} {
		d := diskfile.Disk{Path: at("raw")}
		for range n {
			d.Overlays = append(d.Overlays, at("over"))
		}
		if canBuildOn(d, 100) != want {
			t.Errorf("%d overlays: %v", n, !want)
		}
	}
}

// Responses of the registry have codes that callers know.
func TestCodes(t *testing.T) {
	for _, c := range []struct {
		status  int
		message string
		want    farm.Code
	}{
		{200, farm.NotFoundMessage, farm.CodeNotFound},
		{200, "other", farm.CodeRefused},
		{400, "Did not find any versions of it", farm.CodeNoVersion},
		{400, "other", farm.CodeInvalid},
		{401, "", farm.CodeUnauthenticated},
		{403, "", farm.CodeForbidden},
		{404, "", farm.CodeNotFound},
		{409, "", farm.CodeConflict},
		{412, "", farm.CodeNoParent},
		{413, "", farm.CodeTooLarge},
		{429, "", farm.CodeBusy},
		{502, "", farm.CodeUnavailable},
		{503, farm.NotFoundMessage, farm.CodeUnavailable},
		{504, "", farm.CodeUnavailable},
		{500, "", farm.CodeInternal},
		{418, "", farm.CodeInternal},
	} {
		if got := codeOf(c.status, c.message); got != c.want {
			t.Errorf("%d %q: %s, want %s", c.status, c.message, got, c.want)
		}
	}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"none":        {nil, false},
		"unreachable": {farm.Unavailable(io.EOF, "away"), true},
		"busy":        {farm.Errorf(farm.CodeBusy, "busy"), true},
		"cut":         {fmt.Errorf("read: %w", errTransient), true},
		"refused":     {farm.Refused("no"), false},
		"full":        {farm.Errorf(farm.CodeUnavailable, "%s", blob.DiskFullMessage), false},
		"full, cut": {fmt.Errorf("%w: %w", errTransient,
			farm.Errorf(farm.CodeUnavailable, "%s: 5 bytes", blob.DiskFullMessage)), false},
		"other": {io.EOF, false},
	} {
		if got := IsTemporary(c.err); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// answer is a possible response of the registry.
func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Body: io.NopCloser(strings.NewReader(body))}
}

// An envelope is decoded, and a body without one is reported as such.
func TestDecode(t *testing.T) {
	for name, c := range map[string]struct {
		resp *http.Response
		code farm.Code
		want string // decoded
	}{
		"good":         {answer(200, `{"status":"OK","body":"text"}`), "", "text"},
		"no body":      {answer(200, `{"status":"OK"}`), "", ""},
		"fail":         {answer(200, `{"status":"FAIL","message":"no"}`), farm.CodeRefused, ""},
		"good, 403":    {answer(403, `{"status":"OK","message":"no"}`), farm.CodeForbidden, ""},
		"not found":    {answer(404, `{"status":"FAIL","message":"no"}`), farm.CodeNotFound, ""},
		"no envelope":  {answer(503, `<html>`), farm.CodeUnavailable, ""},
		"other values": {answer(200, `{"status":"OK","body":7}`), farm.CodeInternal, ""},
	} {
		var out string
		err := decodeEnvelope(c.resp, &out)
		if out != c.want || (err == nil) != (c.code == "") || err != nil && farm.CodeOf(err) != c.code {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
	if err := decodeEnvelope(answer(200, `{"status":"OK","body":7}`), nil); err != nil {
		t.Errorf("an answer that nobody wants: %v", err)
	}
	for _, status := range []int{200, 206} {
		if err := responseError(answer(status, `{"status":"OK"}`)); err == nil {
			t.Errorf("%d instead of another status is none", status)
		}
	}
	broken := answer(200, "")
	broken.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"status"`), brokenReader{}))
	if err := decodeEnvelope(broken, nil); farm.CodeOf(err) != farm.CodeUnavailable {
		t.Errorf("an answer that is cut: %v", err)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// Attempts end when they are used up or help no more, and begin again when something moved.
func TestAttempts(t *testing.T) {
	transient := fmt.Errorf("cut: %w", errTransient)
	for name, c := range map[string]struct {
		moved func(n int) bool
		err   func(n int) error
		want  int // tries
		good  bool
		took  time.Duration // at most; at least half of it
	}{
		"at once": {nil, func(int) error { return nil }, 1, true, 0},
		"at last": {nil, func(n int) error {
			return map[bool]error{true: transient}[n < 3]
		}, 3, true, 300 * time.Millisecond},
		"never":    {nil, func(int) error { return transient }, 4, false, 700 * time.Millisecond},
		"for good": {nil, func(int) error { return farm.Refused("no") }, 1, false, 0},
		"moves": {func(n int) bool { return n == 3 }, func(int) error {
			return transient
		}, 6, false, (100 + 200 + 100 + 200 + 400) * time.Millisecond},
		"waits least": {func(n int) bool { return n < 20 }, func(n int) error {
			return map[bool]error{true: transient}[n < 20]
		}, 20, true, 1900 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			client, err := New(Options{BaseURL: "http://registry", MaxAttempts: 4})
			if err != nil {
				t.Fatal(err)
			}
			n, began := 0, time.Now()
			err = client.retryWithProgress(t.Context(), "x", func() (bool, error) {
				n++
				return c.moved != nil && c.moved(n), c.err(n)
			})
			took := time.Since(began)
			if n != c.want || (err == nil) != c.good || took < c.took/2 || took > c.took {
				t.Errorf("%s: %d tries in %v, %v", name, n, took, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		client, err := New(Options{BaseURL: "http://registry", MaxAttempts: 40})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_ = client.retry(t.Context(), "x", func() error { return transient })
		if took := time.Since(began); took < 17*maxBackoff || took > 35*maxBackoff {
			t.Errorf("40 attempts took %v", took)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(120*time.Millisecond, func() { cancel(io.ErrClosedPipe) })
		if err := client.retry(ctx, "x", func() error { return transient }); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("a caller who gives up while it waits: %v", err)
		}
		if err := client.retry(ctx, "x", func() error { return transient }); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("a caller who gave up: %v", err)
		}
	})
}

// A request ends with an error when it is idle.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := New(Options{BaseURL: "http://registry", IdleTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ctx, w := client.watchIdle(t.Context())
		defer w.close()
		r := w.wrapReader(strings.NewReader("bytes"))
		for range 5 {
			time.Sleep(900 * time.Millisecond)
			if _, err := r.Read(make([]byte, 1)); err != nil || ctx.Err() != nil {
				t.Fatalf("%v, %v", err, ctx.Err())
			}
		}
		time.Sleep(900 * time.Millisecond)
		_, _ = r.Read(make([]byte, 1)) // its end moves nothing
		time.Sleep(200 * time.Millisecond)
		if err := markTransient(ctx, io.EOF); !errors.Is(err, errNoProgress) || !errors.Is(err, errTransient) {
			t.Errorf("%v", err)
		}
		if err := markTransient(t.Context(), io.EOF); !errors.Is(err, io.EOF) || !errors.Is(err, errTransient) ||
			errors.Is(err, errNoProgress) {
			t.Errorf("%v", err)
		}
	})
}

// Requests contain whole frames, at least one; frames that the registry has are not sent.
func TestPartsOfFrames(t *testing.T) {
	frame := func(n int) blob.PartFrame { return blob.PartFrame{StoredSize: n, Sum: sha256.Sum256([]byte{byte(n)})} }
	all := []blob.PartFrame{frame(10), frame(20), frame(30)}
	r := unsentRange{off: 100, frames: all, data: make([]byte, 60)}
	for most, want := range map[int64][2]int64{
		0: {1, 10}, 10: {1, 10}, 29: {1, 10}, 30: {2, 30}, 59: {2, 30}, 60: {3, 60}, 1000: {3, 60},
	} {
		if frames, length := r.framesWithin(most); int64(frames) != want[0] || length != want[1] {
			t.Errorf("up to %d: %d frames, %d bytes", most, frames, length)
		}
	}
	for name, c := range map[string]struct {
		have []api.PushPart
		left int
		off  int64
	}{
		"nothing":   {nil, 3, 100},
		"the first": {[]api.PushPart{{Offset: 100, Length: 10, Sum: blob.PartSum(all[:1])}}, 2, 110},
		"two pieces": {[]api.PushPart{
			{Offset: 100, Length: 10, Sum: blob.PartSum(all[:1])},
			{Offset: 110, Length: 50, Sum: blob.PartSum(all[1:])},
		}, 0, 160},
		"other bytes":   {[]api.PushPart{{Offset: 100, Length: 10, Sum: blob.PartSum(all[1:2])}}, 3, 100},
		"other lengths": {[]api.PushPart{{Offset: 100, Length: 15, Sum: blob.PartSum(all[:1])}}, 3, 100},
		"behind":        {[]api.PushPart{{Offset: 110, Length: 20, Sum: blob.PartSum(all[1:2])}}, 3, 100},
	} {
		b := &partSender{received: map[int64]api.PushPart{}}
		for _, p := range c.have {
			b.received[p.Offset] = p
		}
		left := r
		b.skipReceived(&left)
		if len(left.frames) != c.left || left.off != c.off || len(left.data) != int(160-c.off) {
			t.Errorf("%s: %d frames at %d", name, len(left.frames), left.off)
		}
	}
	p := &push{}
	p.maxRequestBytes.Store(4 << 20)
	for _, c := range []struct {
		most, want int64
		shrunk     bool
	}{
		{8 << 20, 4 << 20, false},
		{4 << 20, 4 << 20, false},
		{2 << 20, 2 << 20, true},
		{5, blob.MaxFrameSize, true},
		{5, blob.MaxFrameSize, false},
	} {
		if got := p.shrinkRequests(c.most); got != c.shrunk || p.maxRequestBytes.Load() != c.want {
			t.Errorf("shrink to %d: %v, %d", c.most, got, p.maxRequestBytes.Load())
		}
	}
}

// Progress is reported now and then, with the recent rate.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []Progress
		m := newProgressMeter(func(p Progress) { told = append(told, p) }, 1000)
		m.addTransferred(10)
		time.Sleep(progressInterval - time.Nanosecond)
		m.addTransferred(10)
		if len(told) != 0 {
			t.Errorf("told too soon: %+v", told)
		}
		time.Sleep(time.Nanosecond)
		m.addSkipped(500)
		if len(told) != 1 || told[0].Done != 520 || told[0].Total != 1000 || told[0].Rate != 80 {
			t.Errorf("told %+v", told)
		}
		for range 2 * rateSamples {
			time.Sleep(time.Second)
			m.addTransferred(7)
		}
		m.finish()
		if last := told[len(told)-1]; last.Done != 520+14*rateSamples || last.Rate < 6.9 || last.Rate > 7.5 {
			t.Errorf("at last %+v", last)
		}
		newProgressMeter(nil, 5).finish()
	})
	for _, c := range []struct {
		p    Progress
		want float64
	}{
		{Progress{}, 0},
		{Progress{Done: 5}, 0},
		{Progress{Done: 1, Total: 4}, 0.25},
		{Progress{Done: 9, Total: 4}, 1},
		{Progress{Done: 1, Total: -4}, 0},
		{Progress{Done: 1, Total: 1}, 1},
	} {
		if got := c.p.Fraction(); got != c.want {
			t.Errorf("%+v: %v", c.p, got)
		}
	}
}

// Options that cannot work are refused before anything is sent.
func TestOptionsOfClient(t *testing.T) {
	for address, want := range map[string]bool{
		"http://host": true, " https://host:1/path/ ": true, "": false, "host": false, "ftp://host": false,
		"http://": false, "http://%zz": false,
	} {
		c, err := New(Options{BaseURL: address})
		if (err == nil) != want || want &&
			(c.idleTimeout != defaultIdleTimeout || c.maxAttempts != defaultAttempts ||
				strings.HasSuffix(c.buildURL("/x", nil), "//x")) {
			t.Errorf("%q: %v", address, err)
		}
	}
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		o    clienttls.Options
		want string
	}{
		"none":      {clienttls.Options{}, ""},
		"insecure":  {clienttls.Options{SkipVerify: true}, ""},
		"no key":    {clienttls.Options{CertFile: empty}, "requires a certificate file"},
		"no cert":   {clienttls.Options{KeyFile: empty}, "requires a certificate file"},
		"no PEM":    {clienttls.Options{CertFile: empty, KeyFile: empty}, "client certificate"},
		"no CA":     {clienttls.Options{CAFile: filepath.Join(dir, "none")}, "read CA file"},
		"no CA PEM": {clienttls.Options{CAFile: empty}, "has no certificate in PEM form"},
	} {
		config, err := clienttls.Config(c.o)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) ||
			err == nil && config.InsecureSkipVerify != c.o.SkipVerify {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Blocks have sums of their content, zeros for zeros, independent of bytes behind the end.
func TestSumsOf(t *testing.T) {
	data := make([]byte, 2*blob.BlockSize+5)
	copy(data[blob.BlockSize:], "block")
	copy(data[2*blob.BlockSize:], "block")
	sums := blockChecksums(data)
	full := sha256.Sum256(append([]byte("block"), make([]byte, blob.BlockSize-5)...))
	if len(sums) != 3*checksumSize || !isZero(sums[:checksumSize]) ||
		!bytes.Equal(sums[checksumSize:2*checksumSize], full[:checksumSize]) ||
		!bytes.Equal(sums[2*checksumSize:], full[:checksumSize]) {
		t.Errorf("%x", sums)
	}
	for size, want := range map[int64]int64{0: 0, 1: 1, blob.BlockSize: 1, blob.BlockSize + 1: 2} {
		if got := ChecksumFileSize(size); got != want*checksumSize {
			t.Errorf("%d bytes: %d", size, got)
		}
	}
}

// Redirects are followed so far, and credentials stay where they belong.
func TestRedirects(t *testing.T) {
	c, err := New(Options{BaseURL: "http://registry"})
	if err != nil {
		t.Fatal(err)
	}
	for address, kept := range map[string]bool{
		"http://registry/x": true, "https://registry/x": false, "http://other/x": false,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "secret")
		if err := c.checkRedirect(req, make([]*http.Request, maxRedirects-1)); err != nil ||
			(req.Header.Get("Authorization") != "") != kept {
			t.Errorf("%s: %v, %v", address, req.Header, err)
		}
		if err := c.checkRedirect(req, make([]*http.Request, maxRedirects)); err == nil {
			t.Errorf("%s: redirects without end are followed", address)
		}
	}
}
