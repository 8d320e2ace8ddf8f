# Takes out of InfluxDB's server what no test uses: Flux, Prometheus, backups. They are half of what there is to compile.
# Of the files named here, and of no other.
/^\t"github.com\/influxdata\/flux[/"]/d
/^\t"github.com\/influxdata\/influxdb\/\(flux\|storage\|prometheus\|services\/storage\)[/"]/d
/^\t\(prom \)*"github.com\/prometheus\//d
# cmd/influxd/main.go
/^\t"github.com\/influxdata\/influxdb\/cmd\/influxd\/\(backup\|restore\)"$/d
/^\tcase "\(backup\|restore\)":$/,/^\t\t}$/d
# cmd/influxd/run/server.go
/^\tss := storage.NewStore(/d
/^\tsrv.Handler.Store = ss$/d
# services/httpd/handler.go
/^\t"\(io\/ioutil\|github.com\/golang\/snappy\|github.com\/gogo\/protobuf\/proto\)"$/d
/^\tC.*[. ]\(Controller\|CompilerMappings\)$/d
/^\tStore Store$/d
/^type Store interface {$/,/^}$/d
/^func (h \*Handler) \(serveProm.*\|serveFluxQuery\|logFluxQuery\)(/,/^}$/d
/^\t\t\t"prometheus-/,/^\t\t},$/{
  /^\t\t},$/!d
  s/.*/\t\t\t"not-built", "GET", "\/not-built", false, false, http.NotFound,\n&/
}
/^\tif \(s\.config\.HTTPD\|h\.Config\)\.FluxEnabled {$/,/^\t}$/d
/^\tif h\.registered {$/,/^\t}$/d
s/h\.serveFluxQuery$/http.NotFound/
