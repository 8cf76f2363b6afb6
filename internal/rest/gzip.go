package rest

import (
	"bufio"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// gzipMinBytes is the size of a response, in bytes, from which it is compressed on request.
const gzipMinBytes = 1 << 10

// gzipPool are reusable compressors: a new one takes much memory. Speed matters more than size here, JSON
// compresses well at any level.
var gzipPool = sync.Pool{New: func() any {
	p, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // BestSpeed is a valid level
	return p
}}

// wantsGzip reports whether a response of a size is compressed, and sets the Vary header for caches.
func wantsGzip(w http.ResponseWriter, r *http.Request, size int) bool {
	if size < gzipMinBytes || !isReadOnly(r) {
		return false
	}
	w.Header()["Vary"] = []string{"Accept-Encoding"}
	return acceptsGzip(r.Header["Accept-Encoding"])
}

// acceptsGzip reports whether the header Accept-Encoding names gzip with a weight above 0.
func acceptsGzip(values []string) bool {
	for _, value := range values {
		for one := range strings.SplitSeq(value, ",") {
			coding, params, _ := strings.Cut(one, ";")
			if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
				continue
			}
			weight, given := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
			q, err := strconv.ParseFloat(weight, 64)
			return !given || (err == nil && q > 0)
		}
	}
	return false
}

// writeGzip writes a successful response in gzip.
func writeGzip(w http.ResponseWriter, pieces iter.Seq[[]byte]) {
	w.Header()["Content-Type"] = jsonContentType
	w.Header()["Content-Encoding"] = []string{"gzip"}
	w.WriteHeader(http.StatusOK)
	out := bufio.NewWriterSize(w, writeBufferBytes)
	pack, _ := gzipPool.Get().(*gzip.Writer)
	defer gzipPool.Put(pack)
	pack.Reset(out)
	for piece := range pieces {
		if _, err := pack.Write(piece); err != nil {
			return // the client has disconnected
		}
	}
	if pack.Close() == nil {
		_ = out.Flush()
	}
}
