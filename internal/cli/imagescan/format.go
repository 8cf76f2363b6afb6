package imagescan

import "strings"

// about is what is said of something, with its name once.
func about(name, text string) string {
	if strings.Contains(text, name) {
		return text
	}
	return name + ": " + text
}
