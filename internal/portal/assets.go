package portal

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed assets
var assetFiles embed.FS

// asset is a file that pages use, as it is sent.
type asset struct {
	mediaType      string // its media type
	plain, gzipped []byte // packed: by gzip, nil where that saves nothing
}

// assets are all files that pages use, under a path that names their content: a browser keeps
// them permanently, and a newer program's pages never use older ones.
type assets struct {
	pathPrefix string // of their paths
	byName     map[string]*asset
}

// mediaTypes are the media types of the files; the system's own list may differ.
var mediaTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", ".woff2": "font/woff2",
}

var loadAssets = sync.OnceValue(func() *assets {
	a := &assets{byName: map[string]*asset{}}
	sum := sha256.New()
	err := fs.WalkDir(assetFiles, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := assetFiles.ReadFile(name)
		if err != nil {
			return err
		}
		kind := mediaTypes[path.Ext(name)]
		if kind == "" {
			return nil // licenses: they are in the program, and no page uses them
		}
		_, _ = sum.Write([]byte(name + "\x00"))
		_, _ = sum.Write(text)
		a.byName[strings.TrimPrefix(name, "assets/")] = newAsset(kind, text)
		return nil
	})
	if err != nil {
		panic(err) // the files are in the program
	}
	a.byName[stylesheet] = a.joinFiles(stylesheetFiles)
	a.pathPrefix = "/assets/" + hex.EncodeToString(sum.Sum(nil)[:8]) + "/"
	return a
})

// stylesheet is the style of all pages in one file: a browser shows nothing before it has every one.
const stylesheet = "css/portal.css"

// stylesheetFiles are the files that sheet is made of, in their order.
var stylesheetFiles = []string{
	"css/tokens.css", "css/base.css", "css/layout.css", "css/controls.css", "css/data.css", "css/filter.css",
	"css/notices.css", "css/forms.css", "css/views.css", "css/narrow.css",
}

// joinFiles makes one file of several.
func (a *assets) joinFiles(names []string) *asset {
	var all []byte
	for _, name := range names {
		all = append(append(all, a.byName[name].plain...), '\n')
	}
	return newAsset(mediaTypes[".css"], all)
}

func newAsset(kind string, text []byte) *asset {
	a := &asset{mediaType: kind, plain: text}
	if _, _, err := mime.ParseMediaType(kind); err != nil || strings.HasPrefix(kind, "font/") {
		return a
	}
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	_, _ = w.Write(text) // into memory
	_ = w.Close()
	if packed.Len() < len(text) {
		a.gzipped = packed.Bytes()
	}
	return a
}

// ServeHTTP sends a file.
func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, current := strings.CutPrefix(r.URL.Path, a.pathPrefix)
	file := a.byName[name]
	if !current || file == nil {
		http.Error(w, "File not found. The page may be of an older version: reload it.", http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Content-Type", file.mediaType)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	text := file.plain
	if file.gzipped != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		text = file.gzipped
	}
	h.Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text)
}
