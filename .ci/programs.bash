# What .ci/programs runs: each function starts a server, asks it, and counts or compares what came.
# shellcheck shell=bash disable=SC2154

program redis 'redis-server redis-benchmark redis-cli' 'redis-server redis-tools'
check_redis() {
    serve redis-server --port 6379 --bind 0.0.0.0 --protected-mode no --save ''
    ready 6379
    for depth in 1 16; do
        ask redis-cli -h $host flushall
        ask redis-benchmark -h $host -q -c 50 -P $depth -n 16000 -t set,incr,lpush
        count "$(ask redis-cli -h $host get counter:__rand_int__)" 16000 'INCRs that counted'
        count "$(ask redis-cli -h $host llen mylist)" 16000 'LPUSHes that counted'
    done
    file body 3000000
    ask redis-cli -h $host -x set body < body
    # A child writes what there is.
    ask redis-cli -h $host bgsave
    same "$(ask redis-cli -h $host --raw get body | head -c 3000000 | hash)" "$(hash body)" 'a value'
}

program nginx 'nginx ab h2load wrk curl' 'nginx-light apache2-utils nghttp2-client wrk curl'
check_nginx() {
    file large 20000000
    file short 1000
    cat > nginx.conf <<END
daemon off; user root; worker_processes 2; pid $PWD/pid; error_log stderr notice; events { worker_connections 1024; }
http { access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000; add_header Worker \$pid;
client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
server { listen 8000 backlog=511; listen 8001 http2; root $PWD; } }
END
    serve nginx -p $PWD/ -c nginx.conf
    ready 8000
    ready 8001
    for port in 8000 8001; do
        same "$(ask curl -s --http2-prior-knowledge http://$host:8001/large | hash)" "$(hash large)" "a file from port $port"
    done
    count "$(requests 2000 -c 20 http://$host:8000/short)" 2000 'requests, each a connection'
    count "$(requests 5000 -k -c 20 http://$host:8000/short)" 5000 'requests on connections kept'
    count "$(requests2 5000 -c 10 -m 10 http://$host:8001/short)" 5000 'requests by HTTP/2'
    ask wrk -c 20 -t 2 -d 2 http://$host:8000/short > wrk.log
    same "$(grep -E 'Socket errors|Non-2xx' wrk.log)" '' "wrk's errors"
    # New workers again and again while requests come.
    requests 4000 -c 20 http://$host:8000/short > under-load &
    load=$! reloads=0
    while [ -d /proc/$load ] || [ $reloads = 0 ]; do
        kill -HUP "$(cat pid)"
        reloads=$((reloads + 1))
        sleep 0.3
    done
    count "$(cat under-load)" 4000 'requests during reloads'
    same "$(grep -c ', reconfiguring$' server.log)" $reloads 'reloads'
}

program memcached 'memcached python3' 'memcached python3'
check_memcached() {
    serve memcached -u nobody -t 4 -l 0.0.0.0 -p 11211 -U 11211
    ready 11211
    cat > client.py <<'END'
import hashlib, socket, struct, sys, threading
host, right = sys.argv[1], []
def work(number):
    file = socket.create_connection((host, 11211), 30).makefile('rwb')
    for n in range(500):
        key, value = b'%d.%d' % (number, n), hashlib.sha256(b'%d.%d' % (number, n)).digest() * (1 + n % 200)
        file.write(b'set %s 0 0 %d\r\n%s\r\nget %s\r\n' % (key, len(value), value, key)); file.flush()
        wanted = b'STORED\r\nVALUE %s 0 %d\r\n%s\r\nEND\r\n' % (key, len(value), value)
        if file.read(len(wanted)) == wanted: right.append(key)
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for t in threads: t.start()
for t in threads: t.join()
udp = socket.socket(type=socket.SOCK_DGRAM); udp.settimeout(1); udp.connect((host, 11211))
for n in range(100):
    for attempt in range(20):
        try:
            udp.send(struct.pack('!4H', n * 20 + attempt, 0, 1, 0) + b'get 0.%d\r\n' % n)
            answer = udp.recv(65536)
            while answer[:2] != struct.pack('!H', n * 20 + attempt): answer = udp.recv(65536)
            if answer[8:].startswith(b'VALUE 0.%d ' % n): right.append(n)
            break
        except TimeoutError: pass
print(len(right))
END
    count "$(ask python3 client.py $host)" 4100 'values and datagrams'
    count "$(printf 'stats\r\nquit\r\n' | ask curl -s telnet://$host:11211 | tr -d '\r' | awk '$2 == "cmd_set" { print $3 }')" 4000 'values stored'
}

program postgres 'postgres initdb pgbench psql setpriv' postgresql
check_postgres() {
    as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    mkdir data && chown 65534:65534 data
    "${as[@]}" initdb -D data -A trust > initdb.log
    echo 'host all all 10.77.0.0/24 trust' >> data/pg_hba.conf
    serve "${as[@]}" postgres -D data -h 0.0.0.0 -k ''
    ready 5432
    sql() { ask psql -h $host -U nobody -At postgres -c "$1"; }
    await sql 'select 1'
    bench() { ask pgbench -h $host -U nobody postgres "$@" >> pgbench.log; }
    bench -i -s 1
    bench -n -c 8 -j 2 -t 100
    bench -n -c 4 -t 25 -C
    count "$(sql 'select count(*) from pgbench_history')" 900 transactions
    same "$(sql 'select (select sum(delta) from pgbench_history) = (select sum(bbalance) from pgbench_branches)')" t 'the sum of all'
    same "$(sql "select repeat('netchan ', 500000)" | hash)" "$(python3 -c 'print("netchan " * 500000)' | hash)" 'a large row'
}

# Twenty files at once and one after the other, whatever serves this folder at a port.
fetch_files() {
    for n in $(seq 20); do file part$n $((n * n * 5000)); done
    mkdir got
    (cd got && ask curl -s -S --fail -Z --parallel-max 10 --remote-name-all "http://$host:$1/part[1-20]")
    for n in $(seq 20); do cmp part$n got/part$n && echo; done > equal
    count "$(wc -l < equal)" 20 'files at once'
    ask curl -s -S --fail "http://$host:$1/part[1-20]" > all
    same "$(hash all)" "$(for n in $(seq 20); do cat part$n; done | hash)" 'files one after the other'
}

# A server that answers what it is sent with its hash.
post_bodies() {
    file body 5000000
    ask curl -s -S -Z --data-binary @body -o 'hash#1' "http://$host:$1/?[1-4]"
    for n in 1 2 3 4; do same "$(cat hash$n)" "$(hash body)" 'the hash of a body'; done
    count "$(requests 1000 -c 20 http://$host:$1/)" 1000 'requests, each a connection'
    count "$(requests 2000 -k -c 20 http://$host:$1/)" 2000 'requests on connections kept'
}

program python 'python3 curl ab' 'python3 curl apache2-utils'
check_python() {
    serve python3 -m http.server 8000 --bind 0.0.0.0
    ready 8000
    fetch_files 8000
    count "$(requests 1000 -c 20 http://$host:8000/part1)" 1000 'requests, each a connection'
}

NODE="require('http').createServer((ask, answer) => {
    const hash = require('crypto').createHash('sha256');
    ask.on('data', data => hash.update(data)).on('end', () => answer.end(hash.digest('hex')));
})"

program node 'node curl ab' 'nodejs curl apache2-utils'
check_node() {
    serve env node -e "$NODE.listen(8000)"
    ready 8000
    post_bodies 8000
}

program node-cluster 'node curl ab' 'nodejs curl apache2-utils'
check_node_cluster() {
    echo "const c = require('cluster'); if (c.isPrimary) { c.fork(); c.fork(); } else $NODE.listen(8000)" > server.js
    serve node server.js
    ready 8000
    post_bodies 8000
}

program gunicorn 'gunicorn curl ab' 'gunicorn curl apache2-utils'
check_gunicorn() {
    cat > app.py <<'END'
import hashlib
def app(environ, start):
    sum = hashlib.sha256(environ['wsgi.input'].read()).hexdigest().encode()
    start('200 OK', [('Content-Length', str(len(sum)))])
    return [sum]
END
    serve gunicorn -w 4 -b 0.0.0.0:8000 app:app
    ready 8000
    post_bodies 8000
}

UVICORN="import hashlib
async def app(scope, receive, send):
    if scope['type'] != 'http': return
    sum, more = hashlib.sha256(), True
    while more:
        part = await receive(); sum.update(part.get('body', b'')); more = part.get('more_body', False)
    body = sum.hexdigest().encode()
    await send({'type': 'http.response.start', 'status': 200, 'headers': [(b'content-length', b'%d' % len(body))]})
    await send({'type': 'http.response.body', 'body': body})"

program uvicorn 'uvicorn curl ab' 'uvicorn curl apache2-utils'
check_uvicorn() {
    echo "$UVICORN" > app.py
    serve uvicorn --host 0.0.0.0 --port 8000 --log-level warning app:app
    ready 8000
    post_bodies 8000
}

program uvicorn-workers 'uvicorn curl ab' 'uvicorn curl apache2-utils' --supervise
check_uvicorn_workers() {
    echo "$UVICORN" > app.py
    serve uvicorn --host 0.0.0.0 --port 8000 --log-level warning --workers 2 app:app
    ready 8000
    post_bodies 8000
}

# Between the client and a server on the client's side.
behind_haproxy() {
    cat > haproxy.cfg <<END
global
    maxconn 500
defaults
    mode http
    timeout connect 10s
    timeout client 30s
    timeout server 30s
frontend in
    bind 0.0.0.0:8000
    default_backend behind
backend behind
    server one $peer:9000
END
    serve_there python3 -m http.server 9000 --bind 0.0.0.0
    serve haproxy "$@" -f haproxy.cfg
    ready 8000
    file short 1000
    await ask curl -s --fail http://$host:8000/short
    fetch_files 8000
    count "$(requests 500 -c 10 http://$host:8000/short)" 500 'requests, each a connection'
    count "$(requests 500 -k -c 10 http://$host:8000/short)" 500 'requests on connections kept'
}

program haproxy 'haproxy python3 curl ab' 'haproxy python3 curl apache2-utils'
check_haproxy() { behind_haproxy -db; }

program haproxy-master 'haproxy python3 curl ab' 'haproxy python3 curl apache2-utils'
check_haproxy_master() { behind_haproxy -W; }

program haproxy-master-supervised 'haproxy python3 curl ab' 'haproxy python3 curl apache2-utils' --supervise
check_haproxy_master_supervised() { behind_haproxy -W; }

program haproxy-background 'haproxy python3 curl ab' 'haproxy python3 curl apache2-utils' --supervise
check_haproxy_background() { behind_haproxy -D; }

# Three hundred names of x.test by UDP and by TCP.
ask_names() {
    for n in $(seq 300); do echo "n$n.x.test"; done > names
    for kind in notcp tcp; do
        count "$(ask dig -p 5300 @$host +$kind +short +time=1 +tries=10 -f names | grep -c '^10.1.2.3$')" 300 "names, $kind"
    done
}

program dnsmasq 'dnsmasq dig' 'dnsmasq-base bind9-dnsutils'
check_dnsmasq() { serve_dnsmasq --bind-interfaces; }

program dnsmasq-wildcard 'dnsmasq dig' 'dnsmasq-base bind9-dnsutils'
check_dnsmasq_wildcard() { serve_dnsmasq; }

program dnsmasq-background 'dnsmasq dig' 'dnsmasq-base bind9-dnsutils' --supervise
check_dnsmasq_background() { serve_dnsmasq --keep-in-foreground=no; }

serve_dnsmasq() {
    local foreground=-k
    [ "${1:-}" != --keep-in-foreground=no ] || { foreground= && shift; }
    serve dnsmasq $foreground "$@" -C /dev/null -p 5300 --address=/x.test/10.1.2.3 --no-resolv --no-hosts --user=root --pid-file=
    await ask dig -p 5300 @$host +short +time=1 +tries=1 x.test
    ask_names
}

program named 'named dig nsupdate' 'bind9 bind9-dnsutils'
check_named() { serve_named; }

program named-supervised 'named dig nsupdate' 'bind9 bind9-dnsutils' --supervise
check_named_supervised() { serve_named; }

serve_named() {
    mkdir state
    cat > named.conf <<END
options { directory "$PWD/state"; listen-on port 5300 { 10.77.0.0/24; }; listen-on-v6 { none; }; recursion no; dnssec-validation no; pid-file none;
session-keyfile none; allow-transfer { any; }; };
controls { };
zone "x.test" { type primary; file "zone"; allow-update { any; }; };
END
    { echo '@ 60 IN SOA a.x.test. b.x.test. 1 60 60 60 60'; echo '@ 60 IN NS a'; echo 'a 60 IN A 10.1.2.3'
      echo '* 60 IN A 10.1.2.3'; for n in $(seq 2000); do echo "record$n 60 IN TXT \"$n $n $n\""; done; } > state/zone
    serve named -g -c named.conf -n 2
    ready 5300
    ask_names
    count "$(ask dig -p 5300 @$host x.test axfr | grep -c '^record[0-9]*.x.test.')" 2000 'records of a transfer'
    { echo "server $host 5300"; for n in $(seq 50); do echo "update add new$n.x.test 60 TXT $n"; done; echo send; } | ask nsupdate -v
    count "$(ask dig -p 5300 @$host x.test axfr | grep -c '^new[0-9]*.x.test.')" 50 'records of an update'
}

program mosquitto 'mosquitto mosquitto_pub mosquitto_sub' 'mosquitto mosquitto-clients'
check_mosquitto() {
    printf 'listener 1883 0.0.0.0\nallow_anonymous true\nmax_queued_messages 0\nuser nobody\n' > mosquitto.conf
    serve mosquitto -c $PWD/mosquitto.conf
    ready 1883
    seq 2000 | sed 's/$/ is a number/' > said
    # The subscriber comes back for what was said while it was away.
    ask mosquitto_sub -h $host -i one -c -q 1 -t numbers -E
    ask mosquitto_pub -h $host -q 1 -t numbers -l < said
    ask mosquitto_sub -h $host -i one -c -q 1 -t numbers -C 2000 > heard
    count "$(wc -l < heard)" 2000 messages
    same "$(hash heard)" "$(hash said)" 'their text'
}

# A clone and a push, by whatever serves this folder.
clone_and_push() {
    export HOME=$PWD GIT_TERMINAL_PROMPT=0
    ask git clone -q "$1" clone
    same "$(git -C clone rev-parse HEAD; git -C clone fsck 2>&1)" "$(git -C shared.git rev-parse HEAD)" 'what was cloned'
    file clone/more 300000
    git -C clone add more
    git -C clone commit -qm more
    ask git -C clone push -q origin HEAD
    same "$(git -C shared.git rev-parse HEAD; git -C shared.git fsck 2>&1)" "$(git -C clone rev-parse HEAD)" 'what was pushed'
}

make_repository() {
    export HOME=$PWD
    git config --global user.email nobody@x.test
    git config --global user.name nobody
    git config --global init.defaultBranch main
    git config --global safe.directory '*'
    git init -q first
    for n in $(seq 30); do file first/file$n 100000; git -C first add .; git -C first commit -qm $n; done
    git clone -q --bare first shared.git
    git -C shared.git config http.receivepack true
}

program git-daemon git git
check_git_daemon() {
    make_repository
    serve git daemon --export-all --enable=receive-pack --base-path=$PWD
    ready 9418
    clone_and_push git://$host/shared.git
}

program git-http 'git python3' 'git python3'
check_git_http() {
    make_repository
    mkdir cgi-bin
    printf '#!/bin/sh\nexport GIT_HTTP_EXPORT_ALL=1 GIT_PROJECT_ROOT=%s HOME=%s\nexec git http-backend\n' $PWD $PWD > cgi-bin/git
    chmod 755 cgi-bin/git && chown -R nobody . # the user that it gives its children
    serve python3 -m http.server --cgi 8000 --bind 0.0.0.0
    ready 8000
    clone_and_push http://$host:8000/cgi-bin/git/shared.git
}

program ssh 'sshd ssh ssh-keygen' 'openssh-server openssh-client'
check_ssh() {
    mkdir -p /run/sshd
    for name in host key; do ssh-keygen -q -t ed25519 -N '' -f $name; done
    serve "$(command -v sshd)" -D -e -p 2222 -f /dev/null -h $PWD/host -o AuthorizedKeysFile=$PWD/key.pub -o StrictModes=no -o PermitRootLogin=yes -o PidFile=none -o UsePAM=no
    ready 2222
    file body 10000000
    there() { ask ssh -F none -T -i key -p 2222 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "$(id -un)@$host" "$@"; }
    same "$(there sha256sum < body | cut -c1-64)" "$(hash body)" 'what was sent'
    same "$(there cat $PWD/body < /dev/null | hash)" "$(hash body)" 'what was received'
    same "$(there 'seq 20000; exit 3' < /dev/null | hash; echo ${PIPESTATUS[0]})" "$(seq 20000 | hash; echo 3)" 'output and status'
}

program iperf3 'iperf3 python3' 'iperf3 python3'
check_iperf3() {
    serve iperf3 -s
    ready 5201
    for how in '' -R '-P 4'; do
        # shellcheck disable=SC2086
        ask iperf3 -J -c $host -n 33554432 $how > iperf3.log
        same "$(python3 -c 'import json; print(json.load(open("iperf3.log"))["end"]["sum_sent"]["bytes"] >= 33554432)')" True "a transfer, iperf3 $how"
    done
    ask iperf3 -J -u -b 20M -c $host -n 2000000 > iperf3.log
    same "$(python3 -c 'import json; print(json.load(open("iperf3.log"))["end"]["sum"]["packets"] > 1000)')" True 'datagrams'
}

program go 'go curl ab h2load' 'golang-go curl apache2-utils nghttp2-client'
check_go() {
    cat > main.go <<'END'
package main
import ("crypto/sha256"; "fmt"; "io"; "net/http"; "os")
func main() {
    http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
        sum := sha256.New(); io.Copy(sum, r.Body); fmt.Fprintf(w, "%x", sum.Sum(nil))
    })
    fmt.Println(http.ListenAndServe(":8000", nil)); os.Exit(1)
}
END
    HOME=$PWD GO111MODULE=off GOTOOLCHAIN=local CGO_ENABLED=0 GOCACHE=${GOCACHE:-/tmp/netchan-programs-go} go build -o server main.go
    serve ./server
    ready 8000
    post_bodies 8000
}

program squid 'squid curl python3' 'squid curl python3'
check_squid() {
    cat > squid.conf <<END
http_port 0.0.0.0:3128
http_access allow all
cache_effective_user nobody
pid_filename none
access_log none
cache_log /dev/stderr
pinger_enable off
shutdown_lifetime 1 seconds
END
    serve_there python3 -m http.server 9000 --bind 0.0.0.0
    serve squid -N -f $PWD/squid.conf
    ready 3128
    file body 3000000
    await ask curl -s --fail -x http://$host:3128 http://$peer:9000/body
    for n in $(seq 20); do same "$(ask curl -s -x http://$host:3128 "http://$peer:9000/body?$n" | hash)" "$(hash body)" 'a file'; done
}

# redis's own tests of a server that runs elsewhere: REDIS is a source tree of the version that is installed.
program redis-suite "redis-server redis-cli tclsh ${REDIS:-REDIS=DIR}/runtest" 'redis-server redis-tools tcl'
check_redis_suite() {
    cp -r "$REDIS"/tests "$REDIS"/runtest .
    mkdir src && ln -s "$(command -v redis-cli)" "$(command -v redis-benchmark)" src/
    serve redis-server --port 6379 --bind 0.0.0.0 --protected-mode no --save '' --enable-debug-command yes
    ready 6379
    for unit in protocol querybuf pubsub multi tracking obuf-limits info auth type/list type/stream type/zset; do
        ask tclsh tests/test_helper.tcl --host $host --port 6379 --tags -needs:repl --single unit/$unit >> suite.log 2>&1 || fail "unit $unit"
    done
    same "$(grep -acE '(err|exception).*\]: ' suite.log)" 0 'tests that failed'
    grep -ac 'ok.*\]: ' suite.log >> counted
}
