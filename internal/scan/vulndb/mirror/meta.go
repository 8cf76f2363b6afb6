package mirror

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// feedMeta is the content of the .meta file of a feed of NVD.
type feedMeta struct {
	modified time.Time
	size     int64  // of the unpacked feed
	sha256   string // of the unpacked feed, in lower case
}

const (
	maxMetaBytes     = 4 << 10
	maxFeedUnpacked  = 8 << 30
	metaModified     = "lastModifiedDate"
	metaSize         = "size"
	metaChecksum     = "sha256"
	metaDateAndHours = "2006-01-02T15:04:05-07:00"
)

// parseMeta parses a .meta file: lines of a name, a colon and a value.
func parseMeta(b []byte) (feedMeta, error) {
	if len(b) > maxMetaBytes {
		return feedMeta{}, fmt.Errorf("the .meta file has more than %d bytes", maxMetaBytes)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			values[name] = value
		}
	}
	modified, err := time.Parse(metaDateAndHours, values[metaModified])
	if err != nil {
		return feedMeta{}, fmt.Errorf("the .meta file has no valid %s: %.40q", metaModified, values[metaModified])
	}
	size, err := strconv.ParseInt(values[metaSize], 10, 64)
	if err != nil || size <= 0 || size > maxFeedUnpacked {
		return feedMeta{}, fmt.Errorf("the .meta file has no valid %s: %.40q", metaSize, values[metaSize])
	}
	sum := strings.ToLower(values[metaChecksum])
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != 32 {
		return feedMeta{}, errors.New("the .meta file has no valid " + metaChecksum)
	}
	return feedMeta{modified: modified.UTC(), size: size, sha256: sum}, nil
}
