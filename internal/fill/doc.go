// Package fill orders the fetches of a disk that VMs read before all of it is here: first what a guest waits for, then
// what earlier boots read, then what follows a reader, then the rest.
//
// It knows numbers of frames alone: it moves no bytes, and knows no layers, files or sources. It decides neither what
// is fetched nor whether it is right.
//
// Invariant: a frame is fetched by one worker at a time; the rest is not fetched while a guest waits; Need returns nil
// only when every frame that it names is here.
package fill
