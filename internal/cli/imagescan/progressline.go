package imagescan

import (
	"path/filepath"
	"slices"

	"github.com/buildyard/buildyard/internal/cli"
)

// newProgressLine returns a line that shows progress.
func (g *globals) newProgressLine() *cli.ProgressLine {
	if g.quiet {
		return cli.NewProgressLine(nil)
	}
	return cli.NewProgressLine(g.Err)
}

// completePath completes a path after a prefix.
func completePath(prefix, path string) []string {
	const most = 1000
	found, _ := filepath.Glob(globEscape(path) + "*")
	slices.Sort(found)
	out := make([]string, 0, min(most, len(found)))
	for _, f := range found[:min(most, len(found))] {
		if isDirectory(f) {
			f += "/"
		}
		out = append(out, prefix+f)
	}
	return out
}
