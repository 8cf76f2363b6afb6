package layout

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	pullsFile     = "pulls.log"
	maxPullsBytes = 16 << 20
)

// Times of pulls are stored in a separate file and not in template.json, so that a pull never rewrites
// metadata. The log has one line per pull, "<epoch seconds> <content id>", and is compacted to the newest line
// for each content ID.

// LastPulls reads the time of the last pull of each content ID, in epoch seconds. Lines that a crash truncated are
// ignored.
func (d *Dir) LastPulls(id string) (map[string]int64, error) {
	last := map[string]int64{}
	raw, err := d.readFile(path.Join(TemplatesDir, id, pullsFile), maxPullsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return last, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(raw) {
		stamp, content, ok := strings.Cut(strings.TrimSpace(string(line)), " ")
		when, err := strconv.ParseInt(stamp, 10, 64)
		if ok && err == nil && isHexOfLength(content, 64) {
			last[content] = max(last[content], when)
		}
	}
	return last, nil
}

// AppendPull records a pull. It does not sync: the loss of a time in a power cut does no damage.
func (d *Dir) AppendPull(id, content string, when int64) error {
	f, err := d.root.OpenFile(path.Join(TemplatesDir, id, pullsFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return fmt.Errorf("record time of a pull: %w", err)
	}
	_, err = fmt.Fprintf(f, "%d %s\n", when, content)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("record time of a pull: %w", err)
	}
	return nil
}

// CompactPulls rewrites the log with one line a content id.
func (d *Dir) CompactPulls(id string, last map[string]int64) error {
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	for _, content := range slices.Sorted(maps.Keys(last)) {
		fmt.Fprintf(w, "%d %s\n", last[content], content)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return d.WriteShared("pulls", path.Join(TemplatesDir, id, pullsFile), b.Bytes())
}
