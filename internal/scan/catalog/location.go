package catalog

import "strings"

// archiveMark is between the path of an archive and that of a file within, as Java writes it.
const archiveMark = "!/"

// WithinArchive returns the location of a file in an archive, which may be in another one:
// "/srv/app.jar!/BOOT-INF/lib/a-1.0.jar".
func WithinArchive(archive, name string) string {
	return archive + archiveMark + strings.ToValidUTF8(strings.TrimLeft(name, "/"), "\uFFFD")
}

// FileOf returns the path of the file of a location: that of the outermost archive of one within an archive.
func FileOf(location string) string {
	for at := 0; ; {
		i := strings.Index(location[at:], archiveMark)
		if i < 0 {
			return location
		}
		// A directory, too, may have a name that ends with the mark, but hardly that of an archive.
		if at += i; isArchiveName(location[:at]) {
			return location[:at]
		}
		at += len(archiveMark)
	}
}

// isArchiveName reports whether a path ends as those of Java's archives do: with a dot and three or four letters.
func isArchiveName(path string) bool {
	dot := strings.LastIndexByte(path, '.')
	if n := len(path) - dot - 1; dot < 0 || n < 3 || n > 4 {
		return false
	}
	return strings.Trim(strings.ToLower(path[dot+1:]), "abcdefghijklmnopqrstuvwxyz") == ""
}
