-- What waits, for the newest standalone reader; nothing is changed but what has waited too long.
-- KEYS: the session's log, what waits, its index
-- ARGV: me, tag, stream ('' nobody reads), number, now, age, most events, most bytes, whether the
--   loss that was named is told
if redis.call('HEXISTS', KEYS[1], 'gone') == 1 then return {'GONE'} end
local lost, items, bytes = {}, {}, 0
if ARGV[9] == '1' then redis.call('HDEL', KEYS[1], 'wl') end
expire(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], tonumber(ARGV[5]) - tonumber(ARGV[6]), lost)
if ARGV[3] == '' then return {'OK', redis.call('XLEN', KEYS[2]), lost, items} end
local mine, listed, last = ARGV[3] .. ':' .. ARGV[1] .. ':' .. ARGV[4], false, ''
for one in string.gmatch(redis.call('HGET', KEYS[1], 'h') or '', '%S+') do
  listed, last = listed or one == mine, one
end
if not listed then return {'UNLISTED', '0', lost, items} end
redis.call('PEXPIRE', KEYS[1], 90000000)
if last ~= mine then return {'NOT', string.match(last, '^.-:(.-):'), lost, items} end
for _, entry in ipairs(redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', ARGV[7])) do
  local e = fields(entry)
  bytes = bytes + #e.d
  if #items > 0 and bytes > tonumber(ARGV[8]) then break end
  items[#items + 1] = {entry[1], e.d}
end
return {'OK', redis.call('HGET', KEYS[1], 'wl') or '0', lost, items}
