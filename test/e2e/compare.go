package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/buildyard/buildyard/test/e2e/chromium"
)

// designScreen is a screen of the design, and the picture of a flow that shows the same page.
type designScreen struct{ name, picture string }

// designScreens are all screens of the design.
var designScreens = []designScreen{
	{"dashboard", "large-dashboard"},
	{"dashboard-outage", "outage-dashboard"},
	{"first-run", "first-run-empty"},
	{"nodes", "nodes-list-all"},
	{"node", "failed-slot-node"},
	{"templates", "templates-list-all"},
	{"template", "template-delete-three"},
	{"template-prefetch", "prefetch-ways-filter"},
	{"instances", "large-instances"},
	{"instance", "instance-detail-running"},
	{"instance-waiting", "instance-waits-why"},
	{"instance-failed", "logs-failed-instance"},
	{"instance-console", "console-typed"},
	{"start", "instance-start-filled"},
	{"health", "outage-health"},
	{"events", "events-grouped-open"},
	{"logs", "logs-programs"},
	{"keys", "keys-list"},
	{"login", "log-in-key-asked"},
	{"palette", "search-found"},
	{"error-403", "few-rights-forbidden"},
	{"error-404", "failure-unknown"},
	{"controller-unreachable", "comes-back-away"},
}

const (
	// readmePicture is the picture that docs/portal.png is a copy of, and readmeName how it is called in the directory.
	readmePicture = "large-instances-light-1440.png"
	readmeName    = "portal.png"

	designGap = 20 // pixels between two pictures
)

// designDir is the directory of the screens of the design; "": it is not there.
func designDir() string {
	shared := os.Getenv("SHARED")
	if shared == "" {
		shared = "../shared"
	}
	dir := filepath.Join(shared, "portal", "v2")
	if _, err := os.Stat(filepath.Join(dir, "tokens.css")); err != nil {
		return ""
	}
	return dir
}

// compare leaves the picture for the README and, of each screen of the design, its picture and ours side by side.
// Looks of Firefox are left out: the design differs in the width and the color scheme alone.
func (s *stage) compare(ctx context.Context, used []look, shots string, out io.Writer) error {
	if err := copyPicture(filepath.Join(shots, readmePicture), filepath.Join(shots, readmeName)); err != nil {
		return err
	}
	dir := designDir()
	if dir == "" {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.FileServer(http.Dir(dir)), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	n := 0
	for _, as := range used {
		if as.browser != inChromium {
			continue
		}
		done, err := s.compareLook(as, "http://"+listener.Addr().String(), shots)
		if err != nil {
			return fmt.Errorf("comparing with the design in %s: %w", as, err)
		}
		n += done
	}
	fmt.Fprintf(out, "%d pictures v2-*.png have the design on the left and this portal on the right\n", n)
	return nil
}

// compareLook takes the pictures of the design in a look, and returns how many have one of ours at their side.
func (s *stage) compareLook(as look, address, shots string) (n int, err error) {
	ctx, tab, end, err := chromium.Open(s.browser, as.theme, as.width, as.height,
		chromium.Events{Wrote: func(string) {}, Requested: func(string) {}})
	if err != nil {
		return 0, err
	}
	defer end()
	for _, screen := range designScreens {
		ours, err := os.ReadFile(filepath.Join(shots, screen.picture+"-"+as.file()+".png"))
		if errors.Is(err, fs.ErrNotExist) { // its flow was not run, or failed before
			continue
		}
		if err == nil {
			err = tab.Navigate(ctx, address+"/"+screen.name+".html")
		}
		if err != nil {
			return n, err
		}
		design, err := tab.Screenshot(ctx)
		if err != nil {
			return n, err
		}
		both, err := sideBySide(design, ours)
		if err != nil {
			return n, fmt.Errorf("%s: %w", screen.name, err)
		}
		file := fmt.Sprintf("v2-%s-%d-%s.png", screen.name, as.width, as.theme)
		if err := os.WriteFile(filepath.Join(shots, file), both, 0o644); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// sideBySide returns two PNGs as one.
func sideBySide(left, right []byte) ([]byte, error) {
	a, err := png.Decode(bytes.NewReader(left))
	if err != nil {
		return nil, err
	}
	b, err := png.Decode(bytes.NewReader(right))
	if err != nil {
		return nil, err
	}
	wide := a.Bounds().Dx()
	both := image.NewRGBA(image.Rect(0, 0, wide+designGap+b.Bounds().Dx(), max(a.Bounds().Dy(), b.Bounds().Dy())))
	draw.Draw(both, both.Bounds(), image.NewUniform(color.Gray{Y: 128}), image.Point{}, draw.Src)
	draw.Draw(both, a.Bounds(), a, a.Bounds().Min, draw.Src)
	draw.Draw(both, b.Bounds().Add(image.Pt(wide+designGap, 0)), b, b.Bounds().Min, draw.Src)
	var out bytes.Buffer
	err = png.Encode(&out, both)
	return out.Bytes(), err
}

// copyPicture copies a file unless it is missing.
func copyPicture(from, to string) error {
	text, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, os.WriteFile(to, text, 0o644))
}

// missingPictures returns the screens of the design without a picture of ours.
func missingPictures(used []look, shots string) (names []string) {
	for _, screen := range designScreens {
		if slices.ContainsFunc(used, func(as look) bool {
			_, err := os.Stat(filepath.Join(shots, screen.picture+"-"+as.file()+".png"))
			return err != nil
		}) {
			names = append(names, screen.name)
		}
	}
	return names
}
