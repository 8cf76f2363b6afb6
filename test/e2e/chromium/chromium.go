// Package chromium starts the browser that the portal is used and measured with.
//
// It does not install one: scripts/need.sh e2e does.
//
// Invariant: the browser uses only its own profile, and makes no connections automatically.
package chromium

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/chromedp/chromedp"
)

// Start starts a Chromium that makes no connections automatically, until end is called.
func Start(ctx context.Context, dir string) (started context.Context, end func(), err error) {
	opts := []chromedp.ExecAllocatorOption{
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.UserDataDir(filepath.Join(dir, "browser")),
	}
	for _, name := range []string{
		"disable-quic", "disable-background-networking", "disable-component-update",
		"disable-sync", "disable-dev-shm-usage", "disable-extensions",
	} {
		opts = append(opts, chromedp.Flag(name, true))
	}
	if path := os.Getenv("CHROMIUM"); path != "" {
		opts = append(opts, chromedp.ExecPath(path))
	}
	allocated, free := chromedp.NewExecAllocator(ctx, opts...)
	started, cancel := chromedp.NewContext(allocated)
	end = func() { cancel(); free() }
	if err := chromedp.Do(started, chromedp.Navigate("about:blank")); err != nil {
		end()
		return nil, nil, fmt.Errorf("starting Chromium: %w", err)
	}
	return started, end, nil
}
